// Inbox: what the service was unsure of, grouped by likeness. One key names a whole group; everything can be undone.
import { getItems, post, remove } from "../api.js";
import { ClassCombo } from "../components/class_combo.js";
import { confirm } from "../components/dialog.js";
import { Icon } from "../components/icon.js";
import { ServerImage } from "../components/server_image.js";
import { Empty, Failure, Loading } from "../components/states.js";
import { complain, finishPending, undoable } from "../components/toasts.js";
import { ago } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { route, setParameter } from "../router.js";
import { useShortcuts } from "../shortcuts.js";
import { inboxTotal, newsOf } from "../state.js";
import { t } from "../texts.js";

const PAGE = 100;
const CANDIDATES = 9;

export default function Inbox() {
  const sort = route.value.query.get("sort") ?? "margin";
  const [limit, setLimit] = useState(PAGE);
  const [hidden, setHidden] = useState(new Set()); // about to be named or dismissed
  const { data, error, reload } = useLoaded((signal) => getItems("/inbox", { sort }, limit, { signal }), [sort, limit, inboxTotal.value, newsOf("inbox")]);
  const groups = useMemo(() => grouped((data?.items ?? []).filter((one) => !hidden.has(one.id))), [data, hidden]);
  const [active, setActive] = useState(null); // the group that keys act on
  const current = groups.find((group) => group.id === active) ?? groups[0] ?? null;
  const resolve = (ids, text, body) => {
    setHidden((now) => new Set([...now, ...ids]));
    const back = () => setHidden((now) => new Set([...now].filter((id) => !ids.includes(id))));
    undoable(text, async () => {
      await post("/inbox/resolve", { samples: ids, ...body });
      if (inboxTotal.value) inboxTotal.value = Math.max(0, inboxTotal.value - ids.length);
      reload();
    }, back);
  };
  const erase = async () => {
    if (!(await confirm({ title: t.inbox.eraseTitle, text: t.inbox.eraseText, action: t.inbox.erase, danger: true }))) return;
    await finishPending();
    await remove("/inbox").then(reload, complain);
    inboxTotal.value = 0;
  };
  if (error && !data) return html`<${Head} /><${Failure} error=${error} retry=${reload} />`;
  if (!data) return html`<${Head} /><${Loading} />`;
  return html`<${Head}>${data.total > 0 && html`<div class="head-actions">
      <label><span class="hidden-text">${t.classes.sort}</span><select class="select fit" value=${sort} onChange=${(event) => setParameter("sort", event.target.value)}>
        ${Object.entries(t.inbox.sort).map(([name, text]) => html`<option value=${name} key=${name}>${text}</option>`)}</select></label>
      <button class="button danger" onClick=${erase}><${Icon} name="trash" />${t.inbox.erase}</button></div>`}</${Head}>
    ${groups.length === 0 ? html`<${Nothing} capture=${data.capture} />` : html`<p class="muted small-text">${t.inbox.hint}</p>
      <div class="inbox-list">${groups.map((group) => html`<${Group} key=${group.id} group=${group} current=${group === current} onFocus=${() => setActive(group.id)} onResolve=${resolve} />`)}</div>
      ${data.next && html`<div><button class="button" onClick=${() => setLimit(limit + PAGE)}>${t.inbox.more}</button></div>`}`}`;
}

function Head({ children }) {
  return html`<header class="screen-head"><div><h1>${t.inbox.title}</h1><p>${t.inbox.text}</p></div>${children}</header>`;
}

function Nothing({ capture }) {
  if (capture === "off") {
    return html`<${Empty} icon="inbox" title=${t.inbox.offTitle}><p>${t.inbox.offText}</p><code class="secret">PROTOQUAD_CAPTURE=uncertain protoquad serve</code></${Empty}>`;
  }
  return html`<${Empty} icon="inbox" title=${t.inbox.emptyTitle}><p>${t.inbox.emptyText(capture)}</p></${Empty}>`;
}

/** Samples that look alike together, in the order of their first. */
function grouped(samples) {
  const groups = new Map();
  for (const one of samples) {
    const id = one.group === null || one.group === undefined ? `single ${one.id}` : `group ${one.group}`;
    groups.set(id, [...(groups.get(id) ?? []), one]);
  }
  return [...groups].map(([id, members]) => ({ id, samples: members, candidates: nearest(members) }));
}

/** The classes that the samples are nearest to, the surest first. */
function nearest(samples) {
  const sums = new Map();
  for (const candidate of samples.flatMap((one) => one.top)) {
    const found = sums.get(candidate.class_id) ?? { id: candidate.class_id, name: candidate.label, sum: 0 };
    sums.set(candidate.class_id, { ...found, sum: found.sum + candidate.confidence });
  }
  return [...sums.values()].sort((one, other) => other.sum - one.sum).slice(0, CANDIDATES);
}

function Group({ group, current, onFocus, onResolve }) {
  const all = group.samples.map((one) => one.id);
  const [selected, setSelected] = useState(new Set(all));
  useEffect(() => setSelected(new Set(all)), [all.join(" ")]);
  const box = useRef(null);
  const ids = all.filter((id) => selected.has(id));
  const name = ({ id, name: label }) => ids.length && onResolve(ids, t.inbox.named(ids.length, label), id === null ? { name: label } : { class_id: id });
  const dismiss = () => ids.length && onResolve(ids, t.inbox.dismissed(ids.length), { dismiss: true });
  const toggle = (id) => setSelected((now) => new Set(now.has(id) ? [...now].filter((other) => other !== id) : [...now, id]));
  const everything = ids.length === all.length;
  return html`<section ref=${box} class=${`card inbox-group ${all.length > 2 ? "many" : ""}`} aria-label=${title(group)} onFocusIn=${onFocus} data-current=${current}>
    ${current && html`<${GroupKeys} group=${group} name=${name} dismiss=${dismiss} box=${box} />`}
    <div class="card-head"><h2>${title(group)}</h2>
      ${all.length > 1 && html`<span class="row"><span class="muted small-text">${t.inbox.selected(ids.length, all.length)}</span>
        <button class="button small" onClick=${() => setSelected(new Set(everything ? [] : all))}>${everything ? t.inbox.selectNone : t.inbox.selectAll}</button></span>`}</div>
    <ul class="shots">${group.samples.map((one) => html`<li class=${`shot ${selected.has(one.id) ? "selected" : ""}`} key=${one.id}>
      <label><${ServerImage} path=${`/inbox/${one.id}/thumbnail`} alt=${t.inbox.alt(one)} />
        <input class="shot-pick" type="checkbox" checked=${selected.has(one.id)} aria-label=${t.inbox.select(one.id)} onChange=${() => toggle(one.id)} /></label>
      <span class="small-text muted">${one.unknown ? t.try.unknown : one.label} · ${ago(one.created_at)}</span></li>`)}</ul>
    <div class="candidates">${group.candidates.map((one, index) => html`<button class="button small" key=${one.id} disabled=${!ids.length} onClick=${() => name(one)}><kbd>${index + 1}</kbd>${one.name}</button>`)}
      <button class="button small" disabled=${!ids.length} onClick=${dismiss}><kbd>X</kbd>${t.inbox.dismiss}</button></div>
    <${ClassCombo} label=${t.inbox.name} onChoose=${name} />
  </section>`;
}

const title = (group) => (group.samples.length > 1 ? t.inbox.alike(group.samples.length) : t.inbox.one);

/** The keys of the group in use. */
function GroupKeys({ group, name, dismiss, box }) {
  const numbers = Object.fromEntries(group.candidates.map((one, index) => [String(index + 1), () => name(one)]));
  useShortcuts({ ...numbers, x: dismiss, n: () => box.current.querySelector("[role=combobox]").focus() });
  return null;
}
