// Models: switch, make, delete, export to a file and import from one.
import { get, post, remove, request } from "../api.js";
import { plural } from "../format.js";
import { html, useRef, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { go, to } from "../router.js";
import { may, model } from "../state.js";
import { t } from "../texts.js";
import { confirm } from "./dialog.js";
import { Failure, Loading } from "./states.js";
import { complain, say } from "./toasts.js";

const NAME = "[a-z0-9_\\-]{1,63}"; // as the service wants names of models

export function Models() {
  const { data, error, reload } = useLoaded((signal) => get("/models", {}, { signal }), [model.value]);
  return html`<section class="card" aria-labelledby="models-title"><h2 id="models-title">${t.settings.models}</h2><p class="muted small-text">${t.settings.modelsText}</p>
    ${error && !data ? html`<${Failure} error=${error} retry=${reload} />` : !data ? html`<${Loading} rows=${2} />` : html`<ul class="stack">${data.items.map((one) => html`<${Model} key=${one.name} one=${one} onChanged=${reload} />`)}</ul>`}
    ${may("admin") && html`<hr /><${MakeModel} onMade=${reload} /><${ImportModel} onMade=${reload} />`}
  </section>`;
}

function Model({ one, onChanged }) {
  const [busy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    await exportModel(one.name).catch(complain);
    setBusy(false);
  };
  const drop = async () => {
    if (!(await confirm({ title: t.settings.removeModelTitle(one.name), text: t.settings.removeModelText, action: t.settings.removeModel, danger: true }))) return;
    try {
      await remove(`/models/${encodeURIComponent(one.name)}`);
      say(t.settings.removedModel(one.name));
      if (model.value === one.name) go("settings", { model: "" });
      onChanged();
    } catch (error) {
      complain(error);
    }
  };
  const inUse = model.value === one.name;
  return html`<li class="row spread" data-model=${one.name}>
    <div><b>${one.name}</b> ${inUse && html`<span class="chip accent">${t.settings.inUse}</span>`}
      <div class="muted small-text">${plural(one.classes, "class", "classes")} · ${t.try.version(one.version)} · ${one.backbone}</div></div>
    <div class="row">
      ${!inUse && html`<a class="button small" href=${to("settings", { model: one.name === "default" ? "" : one.name })}>${t.settings.use}</a>`}
      ${may("admin") && html`<button class="button small" disabled=${busy} onClick=${save}>${busy ? t.settings.exporting : t.settings.export}</button>`}
      ${may("admin") && one.name !== "default" && html`<button class="button small danger" onClick=${drop}>${t.settings.removeModel}</button>`}
    </div></li>`;
}

/** Saves the archive as a file: a link could not send the key. */
async function exportModel(name) {
  const response = await request(`/models/${encodeURIComponent(name)}/export`);
  const address = URL.createObjectURL(await response.blob());
  const link = Object.assign(document.createElement("a"), { href: address, download: `${name}.pq` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

function MakeModel({ onMade }) {
  const [name, setName] = useState("");
  const [backbone, setBackbone] = useState("");
  const [busy, setBusy] = useState(false);
  const make = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const made = await post("/models", { name: name.trim(), ...(backbone.trim() ? { backbone: backbone.trim() } : {}) });
      say(t.settings.made(made.name), "good");
      setName("");
      onMade();
    } catch (error) {
      complain(error);
    }
    setBusy(false);
  };
  return html`<form class="stack" onSubmit=${make}><h3>${t.settings.make}</h3><div class="inline-form">
    <label class="field"><span>${t.settings.name}</span><input class="input" required pattern=${NAME} value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <label class="field"><span>${t.settings.backbone}</span><input class="input" value=${backbone} onInput=${(event) => setBackbone(event.target.value)} /></label>
    <button class="button" disabled=${busy}>${t.settings.create}</button></div>
    ${busy && html`<p class="muted small-text" role="status">${t.settings.preparing}</p>`}</form>`;
}

function ImportModel({ onMade }) {
  const file = useRef(null);
  const [name, setName] = useState("");
  const [busy, setBusy] = useState(false);
  const read = async (event) => {
    const [archive] = event.target.files;
    event.target.value = "";
    if (!archive) return;
    setBusy(true);
    try {
      const made = await post("/models/import", archive, { query: { name: name.trim() }, headers: { "Content-Type": "application/octet-stream" } });
      say(t.settings.imported(made.name), "good");
      setName("");
      onMade();
    } catch (error) {
      complain(error);
    }
    setBusy(false);
  };
  return html`<form class="inline-form" onSubmit=${(event) => (event.preventDefault(), file.current.click())}>
    <label class="field"><span>${t.settings.importName}</span><input class="input" required pattern=${NAME} value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <button class="button" disabled=${busy}>${busy ? t.settings.importing : t.settings.import}</button>
    <input ref=${file} type="file" hidden data-source="archive" onChange=${read} /></form>`;
}
