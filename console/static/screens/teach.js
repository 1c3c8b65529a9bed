// Teach: images become classes. Checked before they are sent, named against typos, then watched while a session refines them.
import { get } from "../api.js";
import { Icon } from "../components/icon.js";
import { SessionProgress } from "../components/session_progress.js";
import { Sources } from "../components/sources.js";
import { complain } from "../components/toasts.js";
import { plural } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { candidates, closest } from "../names.js";
import { go, to } from "../router.js";
import { useShortcuts } from "../shortcuts.js";
import { may, newsOf } from "../state.js";
import * as teaching from "../teaching.js";
import { t } from "../texts.js";

export default function Teach() {
  const groups = teaching.groups.value;
  const open = groups.filter((one) => one.state !== "taught");
  const taught = groups.filter((one) => one.state === "taught");
  const ready = groups.filter(teaching.ready);
  const known = useKnownClasses();
  const sending = groups.some((one) => one.state === "sending");
  const looking = groups.some((one) => one.images.some((image) => image.pending));
  useShortcuts({ Enter: () => (ready.length && !sending && !looking ? teaching.teachAll() : false) });
  const first = known === 0 && !groups.length;
  return html`
    <header class="screen-head"><div><h1>${t.teach.title}</h1><p>${t.teach.text}</p></div></header>
    ${!may("teach") && html`<p class="note warn"><${Icon} name="key" />${t.teach.forbidden}</p>`}
    <${Sources} title=${t.teach.drop} text=${t.teach.dropText} folders onFiles=${(files) => teaching.add(files).catch(complain)} compact=${groups.length > 0}>
      ${!groups.length && html`<${SampleButton} prominent=${first} />`}
    </${Sources}>
    ${first && html`<${FirstSteps} />`}
    ${taught.length > 0 && html`<${Taught} groups=${taught} more=${open.length > 0} />`}
    ${open.length > 0 && html`<div class="groups">${open.map((group) => html`<${Group} group=${group} key=${group.id} />`)}</div>
      <div class="action-bar">
        <span class="muted">${ready.length < open.length ? t.teach.notReady(open.length - ready.length) : t.teach.allReady}</span>
        <button class="button primary large" disabled=${!ready.length || sending || looking} onClick=${teaching.teachAll}>
          ${sending ? t.teach.sending : t.teach.send(ready.length || open.length)} <kbd>Enter</kbd>
        </button>
      </div>`}`;
}

/** How many classes the model has: one that has none is shown how to begin. */
function useKnownClasses() {
  const [known, setKnown] = useState(null);
  const changed = newsOf("taught", "deleted");
  useEffect(() => {
    get("/classes", { limit: 1 }).then((page) => setKnown(page.total ?? page.items.length), () => {});
  }, [changed]);
  return known;
}

function SampleButton({ prominent }) {
  const [busy, setBusy] = useState(false);
  const start = async () => {
    setBusy(true);
    try {
      if (!(await teaching.addSamples())) go("try", { samples: 1 });
    } catch (error) {
      complain(error);
    }
    setBusy(false);
  };
  return html`<button class=${`button ${prominent ? "primary large" : ""}`} disabled=${busy} onClick=${start}><${Icon} name="spark" />${t.teach.samples}</button>`;
}

function FirstSteps() {
  return html`<ol class="steps">
    ${t.teach.steps.map(([title, text], index) => html`<li class="card" key=${title}><span class="step-number">${index + 1}</span><h2>${title}</h2><p class="muted">${text}</p></li>`)}
  </ol>`;
}

function Group({ group }) {
  useNameCheck(group);
  const input = useRef(null);
  useEffect(() => {
    if (!group.name) input.current.focus();
  }, []);
  const bad = group.images.filter((image) => !image.usable && !image.pending).length;
  const refused = group.images.filter((image) => image.refused).length;
  const marked = group.images.filter((image) => image.marks.length).length;
  const good = teaching.usable(group).length;
  return html`<section class="card group" aria-label=${group.name || t.teach.unnamed} data-state=${group.state}>
    <div class="card-head">
      <label class="field group-name"><span>${t.teach.name}</span>
        <input class="input" value=${group.name} maxlength="200" placeholder=${t.teach.namePlaceholder} autocomplete="off" disabled=${group.state === "sending"}
          onInput=${(event) => teaching.rename(group.id, event.target.value)} onKeyDown=${(event) => event.key === "Enter" && teaching.teachAll()} ref=${input} />
      </label>
      <button class="icon-button" aria-label=${t.teach.removeGroup(group.name)} onClick=${() => teaching.removeGroup(group.id)}><${Icon} name="close" /></button>
    </div>
    ${group.same && html`<p class="note"><${Icon} name="plus" />${t.teach.addsTo(group.same.name, good)}</p>`}
    ${group.similar && html`<p class="note warn"><${Icon} name="warning" /><span>${t.teach.similar(group.similar.name)} <button class="link-button" onClick=${() => teaching.rename(group.id, group.similar.name)}>${t.teach.useName(group.similar.name)}</button></span></p>`}
    <ul class="thumbs">${group.images.map((image) => html`<${Image} image=${image} group=${group} key=${image.id} />`)}</ul>
    <p class="muted small-text">${advice(good)}${marked ? ` ${t.teach.marked(marked)}` : ""}</p>
    ${group.error && html`<p class="note bad" role="alert"><${Icon} name="warning" /><span>${group.error}</span></p>`}
    ${(bad > 0 || refused > 0) && html`<div><button class="button small" onClick=${() => teaching.removeBad(group.id)}>${t.teach.removeBad(bad + refused)}</button></div>`}
  </section>`;
}

function advice(good) {
  if (good === 0) return t.teach.noImages;
  return good < 5 ? t.teach.fewImages(good) : t.teach.enoughImages(good);
}

/** Looks for classes of that name, or one so similar that it may be meant. */
function useNameCheck(group) {
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const found = closest(group.name, await candidates(group.name, stop.signal));
        teaching.change(group.id, found);
      } catch {
        // Without an answer the service itself says that a name is taken.
      }
    }, 250);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [group.name, group.state === "sending"]);
}

function Image({ image, group }) {
  const marks = image.refused ? ["refused"] : image.marks;
  const worst = image.refused || !image.usable ? "bad" : marks.length ? "warn" : "";
  const reason = image.refused ?? marks.map((mark) => t.marks[mark].text).join(" ");
  return html`<li class=${`thumb ${worst}`}>
    <span class="picture">${image.thumbnail ? html`<img src=${image.thumbnail} alt=${image.name} />` : image.pending ? html`<span class="skeleton"></span>` : html`<${Icon} name="image" />`}</span>
    ${marks.length > 0 && !image.pending && html`<span class=${`mark chip ${worst}`} title=${reason}>${marks.map((mark) => t.marks[mark].label).join(", ")}<span class="hidden-text">${` ${image.name}: ${reason}`}</span></span>`}
    ${group.state !== "taught" && html`<button class="thumb-remove" aria-label=${t.teach.removeImage(image.name)} onClick=${() => teaching.removeImage(group.id, image)}><${Icon} name="close" size=${14} /></button>`}
  </li>`;
}

function Taught({ groups, more }) {
  const session = groups.map((one) => one.outcome.session?.id).filter(Boolean).at(-1);
  const again = () => groups.forEach((one) => teaching.removeGroup(one.id));
  return html`<section class="stack" aria-label=${t.teach.taughtTitle}>
    <div class="card taught">
      <div class="card-head">
        <h2><${Icon} name="check" /> ${t.teach.taught(groups.length)}</h2>
        ${!more && html`<div class="row"><button class="button" onClick=${again}>${t.teach.again}</button><a class="button primary" href=${to("try", { samples: 1 })}>${t.teach.tryIt}</a></div>`}
      </div>
      <ul class="taught-list">${groups.map((group) => html`<${TaughtGroup} group=${group} key=${group.id} />`)}</ul>
    </div>
    ${session && html`<${SessionProgress} id=${session} key=${session} />`}
  </section>`;
}

function TaughtGroup({ group }) {
  const { outcome } = group;
  const far = group.images.filter((image) => image.marks.includes("outlier"));
  return html`<li>
    <div class="row spread"><a href=${to(`classes/${outcome.class.id}`)}><b>${outcome.class.name}</b></a>
      <span class="muted small-text">${group.added ? t.teach.grew(plural(outcome.class.shots, "shot")) : plural(outcome.class.shots, "shot")} · ${t.teach.servedBy(outcome.version)}</span></div>
    <ul class="thumbs tiny">${group.images.filter((image) => image.usable).slice(0, 12).map((image) => html`<${Image} image=${image} group=${group} key=${image.id} />`)}</ul>
    ${far.length > 0 && html`<p class="note warn small-text"><${Icon} name="warning" />${t.teach.outliers(far.length)}</p>`}
  </li>`;
}
