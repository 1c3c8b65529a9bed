// Try: an image in, an answer out, and why. "This is …" makes the image a shot with one key.
import { get } from "../api.js";
import { Answer } from "../components/answer.js";
import { ClassCombo } from "../components/class_combo.js";
import { Icon } from "../components/icon.js";
import { Sources } from "../components/sources.js";
import { Empty } from "../components/states.js";
import { complain, say } from "../components/toasts.js";
import { html, useEffect, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { route, to } from "../router.js";
import { useShortcuts } from "../shortcuts.js";
import { head, may, newsOf } from "../state.js";
import { sampleFile } from "../teaching.js";
import { t } from "../texts.js";
import * as trying from "../trying.js";

export default function Try() {
  const [live, setLive] = useState(null);
  const versions = useVersions();
  const entry = trying.current();
  const beside = trying.versionBeside.value;
  useEffect(() => {
    const now = trying.current();
    if (now && (now.answer || now.error)) trying.askAgain(now);
  }, [head.value, beside]);
  const watch = async (blob) => {
    try {
      setLive(await trying.predict(blob));
    } catch (error) {
      setLive(null);
      if (error.status !== 0 && error.status !== 503) complain(error);
    }
  };
  const give = (files) => {
    setLive(null);
    scrollTo({ top: 0 }); // to where the answer appears
    trying.tryFiles(files.map(({ file }) => file)).catch(complain);
  };
  return html`
    <header class="screen-head"><div><h1>${t.try.title}</h1><p>${t.try.text}</p></div>
      ${versions.length > 1 && html`<${Beside} versions=${versions} />`}</header>
    <div class="two-columns try">
      <div class="stack">
        ${entry && !live && html`<${Shown} entry=${entry} />`}
        <${Sources} title=${t.try.drop} onFiles=${give} live=${watch} compact=${Boolean(entry)} />
        <${Samples} onFiles=${give} />
        ${trying.tried.value.length > 1 && html`<${Strip} />`}
      </div>
      <div class="stack answers" aria-busy=${Boolean(entry) && !entry.answer && !entry.error}>
        ${live ? html`<${Answer} answer=${live} title=${t.try.live} />` : html`<${Answers} entry=${entry} />`}
      </div>
    </div>`;
}

function useVersions() {
  const { data } = useLoaded((signal) => get("/versions", { limit: 100 }, { signal }), [head.value, newsOf("version")]);
  return data?.items ?? [];
}

/** A second version to ask about the same image. */
function Beside({ versions }) {
  const choose = (event) => (trying.versionBeside.value = event.target.value ? Number(event.target.value) : null);
  const others = versions.filter((one) => !one.active && one.kept && one.classes > 0);
  return html`<label class="row"><span class="label-text">${t.try.compareWith}</span>
    <select class="select fit" value=${trying.versionBeside.value ?? ""} onChange=${choose}>
      <option value="">${t.try.noOther}</option>
      ${others.map((one) => html`<option value=${one.number} key=${one.number}>${t.try.versionOption(one)}</option>`)}
    </select></label>`;
}

function Shown({ entry }) {
  return html`<figure class="shown">
    ${entry.address ? html`<img src=${entry.address} alt=${t.try.given(entry.name)} />` : html`<span class="picture"><${Icon} name="image" size=${32} /></span>`}
    <figcaption class="small-text muted">${entry.name}</figcaption>
  </figure>`;
}

function Samples({ onFiles }) {
  const { data } = useLoaded(() => get("/samples"));
  const wanted = route.value.query.get("samples");
  if (!data || (!wanted && trying.tried.value.length > 0)) return null;
  const give = async (address) => onFiles([{ file: await sampleFile(address), folder: "" }]);
  return html`<section class="stack" aria-label=${t.try.samples}><h3 class="muted">${t.try.samples}</h3>
    <ul class="sample-row">${data.flatMap((one) => one.tests).map(
      (address) => html`<li key=${address}><button class="sample" aria-label=${t.try.sample(nameOf(address))} onClick=${() => give(address)}><span class="picture"><img src=${address} alt="" width="96" height="96" /></span></button></li>`,
    )}</ul></section>`;
}

const nameOf = (address) => address.split("/").at(-1).replace(/\.\w+$/, "").replace("-", " ");

function Strip() {
  return html`<section class="stack" aria-label=${t.try.earlier}>
    <div class="row spread"><h3 class="muted">${t.try.earlier}</h3><button class="button small" onClick=${trying.clear}>${t.try.clear}</button></div>
    <ul class="thumbs strip">${trying.tried.value.map(
      (one) => html`<li class="thumb" key=${one.id}><button class="thumb-pick" aria-pressed=${one.id === trying.current().id} aria-label=${`${one.name}: ${summary(one)}`} onClick=${() => (trying.selected.value = one.id)}>
        <span class="picture">${one.thumbnail ? html`<img src=${one.thumbnail} alt="" />` : html`<${Icon} name="image" />`}</span><span class="small-text">${summary(one)}</span></button></li>`,
    )}</ul></section>`;
}

function summary({ answer, error }) {
  if (error) return t.try.refused;
  if (!answer) return "…";
  return answer.unknown ? t.try.unknown : answer.label;
}

function Answers({ entry }) {
  if (!entry) return html`<${Empty} icon="try" title=${t.try.emptyTitle}><p>${t.try.emptyText}</p></${Empty}>`;
  if (entry.error) return html`<p class="note bad" role="alert"><${Icon} name="warning" /><span>${t.try.cannot(entry.name)} ${entry.error}</span></p>`;
  if (!entry.answer) return html`<div class="card answer"><span class="skeleton tall"></span></div>`;
  const { answer, other } = entry;
  const thisIs = (found) => teachAs(entry, found);
  return html`${!answer.top.length && html`<${Empty} icon="teach" title=${t.try.nothingTaught}><p>${t.try.nothingTaughtText}</p><a class="button primary" href=${to("teach")}>${t.nav.teach}</a></${Empty}>`}
    ${answer.top.length > 0 && html`<div class=${other ? "side-by-side" : "stack"}>
      <${Answer} answer=${answer} title=${t.try.answer} keys=${may("teach")} onThis=${thisIs} />
      ${other && html`<${Answer} answer=${other} title=${t.try.other} />`}
    </div>`}
    ${may("teach") && html`<${ThisIs} entry=${entry} onThis=${thisIs} />`}`;
}

function ThisIs({ entry, onThis }) {
  const top = entry.answer.top.slice(0, 9);
  const keys = Object.fromEntries(top.map((one, index) => [String(index + 1), () => onThis({ id: one.class_id, name: one.label })]));
  useShortcuts({ ...keys, n: () => document.querySelector("#this-is input").focus() });
  if (entry.taught) return html`<p class="note good" role="status"><${Icon} name="check" /><span>${t.try.taught} <a href=${to(`classes/${entry.taught.id}`)}>${entry.taught.name}</a></span></p>`;
  return html`<div class="card" id="this-is"><${ClassCombo} label=${t.try.thisIsLabel} onChoose=${onThis} /><p class="muted small-text">${t.try.thisIsHint}</p></div>`;
}

async function teachAs(entry, found) {
  try {
    const outcome = await trying.teachAs(entry, found);
    say(t.try.added(outcome.class.name, outcome.version), "good");
  } catch (error) {
    complain(error);
  }
}
