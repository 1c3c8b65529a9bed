// Classes: the gallery, searched and sorted, however many there are; and which of them are confused.
import { get } from "../api.js";
import { Confusion } from "../components/confusion.js";
import { Icon } from "../components/icon.js";
import { Interval } from "../components/interval.js";
import { ServerImage } from "../components/server_image.js";
import { Empty, Failure, Loading } from "../components/states.js";
import { complain } from "../components/toasts.js";
import { VirtualGrid } from "../components/virtual_grid.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { route, setParameter, to } from "../router.js";
import { useShortcuts } from "../shortcuts.js";
import { head, newsOf } from "../state.js";
import { t } from "../texts.js";

const PAGE = 200;
const ORDER = { created: "desc", name: "asc", accuracy: "asc", shots: "asc" };
const CHANGES = ["taught", "version", "head", "renamed", "deleted"];

export default function Classes() {
  const query = route.value.query;
  const view = query.get("view") ?? "gallery";
  const search = query.get("search") ?? "";
  const sort = query.get("sort") ?? "created";
  const field = useRef(null);
  useShortcuts({ "/": () => field.current?.focus() });
  const list = useClassList(search, sort);
  return html`
    <header class="screen-head"><div><h1>${t.classes.title}</h1><p>${list.total === null ? " " : t.classes.text(list.total)}</p></div>
      <div class="segments" role="group" aria-label=${t.classes.title}>
        ${["gallery", "confusion"].map((name) => html`<button key=${name} aria-pressed=${view === name} onClick=${() => setParameter("view", name === "gallery" ? "" : name)}>${t.classes.views[name]}</button>`)}
      </div></header>
    ${view === "confusion" ? html`<${Confusion} />` : html`
      <div class="toolbar">
        <label class="search"><span class="hidden-text">${t.classes.search}</span><${Icon} name="search" />
          <input ref=${field} class="input" type="search" placeholder=${`${t.classes.search}  ( / )`} value=${search} onInput=${(event) => setParameter("search", event.target.value)} /></label>
        <label><span class="hidden-text">${t.classes.sort}</span>
          <select class="select" value=${sort} onChange=${(event) => setParameter("sort", event.target.value)}>
            ${Object.entries(t.classes.sorts).map(([name, text]) => html`<option value=${name} key=${name}>${text}</option>`)}
          </select></label>
      </div>
      <${Gallery} list=${list} search=${search} />`}`;
}

/** The classes that match, loaded from the start as far as somebody scrolls. */
function useClassList(search, sort) {
  const [state, setState] = useState({ items: [], next: null, total: null, error: null });
  const wanted = useRef(0);
  const busy = useRef(false);
  const changed = newsOf(...CHANGES);
  const settled = useSettled(search);
  const query = { search: settled, sort, order: ORDER[sort] };
  const first = useLoaded((signal) => get("/classes", { ...query, limit: PAGE }, { signal }), [settled, sort, changed, head.value]);
  useEffect(() => {
    if (first.data) setState({ items: first.data.items, next: first.data.next, total: first.data.total ?? first.data.items.length, error: null });
    if (first.error) setState((now) => ({ ...now, error: first.error }));
  }, [first.data, first.error]);
  const fetchMore = async () => {
    if (busy.current) return;
    busy.current = true;
    let { items, next, total } = state;
    try {
      while (next && items.length < wanted.current) {
        const page = await get("/classes", { ...query, cursor: next, limit: 500 });
        items = [...items, ...page.items];
        next = page.next;
        setState({ items, next, total: page.total ?? total, error: null });
      }
    } catch (error) {
      complain(error);
    }
    busy.current = false;
  };
  const show = (_, last) => {
    wanted.current = last;
    if (state.next && last > state.items.length - PAGE / 2) fetchMore();
  };
  return { ...state, show, reload: first.reload };
}

/** A text that somebody types, once they pause. */
function useSettled(text) {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), 200);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

function Gallery({ list, search }) {
  if (list.error && !list.items.length) return html`<${Failure} error=${list.error} retry=${list.reload} />`;
  if (list.total === null) return html`<${Loading} />`;
  if (list.total === 0 && search) return html`<${Empty} icon="search" title=${t.classes.noMatch} />`;
  if (list.total === 0) {
    return html`<${Empty} icon="classes" title=${t.classes.emptyTitle}><p>${t.classes.emptyText}</p><a class="button primary" href=${to("teach")}>${t.nav.teach}</a></${Empty}>`;
  }
  const item = (index) => list.items[index] && html`<${ClassCard} one=${list.items[index]} />`;
  return html`<${VirtualGrid} total=${list.total} minWidth=${9.5} rowHeight=${16} item=${item} onVisible=${list.show} label=${t.classes.list} />`;
}

function ClassCard({ one }) {
  const cover = one.cover === null || one.cover === undefined ? null : `/classes/${one.id}/shots/${one.cover}/thumbnail`;
  return html`<a class="class-card" href=${to(`classes/${one.id}`)}>
    <${ServerImage} path=${cover} alt="" />
    <span class="class-name" title=${one.name}>${one.name}</span>
    <span class="row small-text muted tight">${one.guarded ? t.classes.guards(one.shots) : t.classes.shots(one.shots)}<${Status} one=${one} /></span>
    <${Interval} accuracy=${one.accuracy} />
  </a>`;
}

export function Status({ one }) {
  if (!one.served) return html`<span class="chip warn" title=${t.classes.notServedText}>${t.classes.notServed}</span>`;
  if (one.status === "provisional") return html`<span class="chip accent">${t.classes.provisional}</span>`;
  return one.guarded ? html`<span class="chip">${t.classes.guarded}</span>` : null;
}
