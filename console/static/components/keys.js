// API keys: who has one, with which scope. A new key is shown once.
import { get, post, remove } from "../api.js";
import { ago } from "../format.js";
import { html, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { key, may, useKey, who } from "../state.js";
import { t } from "../texts.js";
import { confirm } from "./dialog.js";
import { Failure, Loading } from "./states.js";
import { complain, say } from "./toasts.js";

export function Keys() {
  const allowed = may("admin");
  const { data, error, reload } = useLoaded((signal) => (allowed ? get("/keys", {}, { signal }) : null), [allowed, key.value]);
  const [made, setMade] = useState(null);
  return html`<section class="card" aria-labelledby="keys-title"><h2 id="keys-title">${t.settings.keys}</h2><p class="muted small-text">${allowed ? t.settings.keysText : t.settings.keysAdmin}</p>
    ${made && html`<div class="note good"><div class="stack"><b>${t.settings.newKey}</b><code class="secret">${made.key}</code>
      <div><button class="button small" onClick=${() => navigator.clipboard?.writeText(made.key).then(() => say(t.settings.copied))}>${t.settings.copy}</button></div></div></div>`}
    ${error ? html`<${Failure} error=${error} retry=${reload} />` : allowed && !data ? html`<${Loading} rows=${2} />` : data && html`
      ${data.items.length === 0 ? html`<p class="muted">${t.settings.noKeys}</p>` : html`<ul class="stack">${data.items.map((one) => html`<${Key} key=${one.id} one=${one} onChanged=${reload} />`)}</ul>`}
      <hr /><${MakeKey} first=${data.items.length === 0} onMade=${(one) => (setMade(one), reload())} />`}
    ${key.value && html`<div><button class="button small" onClick=${() => (useKey(""), location.reload())}>${t.settings.leave}</button></div>`}
  </section>`;
}

function Key({ one, onChanged }) {
  const revoke = async () => {
    if (!(await confirm({ title: t.settings.revokeTitle(one.name), text: t.settings.revokeText, action: t.settings.revoke, danger: true }))) return;
    await remove(`/keys/${encodeURIComponent(one.id)}`).then(onChanged, complain);
  };
  const mine = who.value?.key_id === one.id;
  return html`<li class="row spread" data-key=${one.id}><div><b>${one.name}</b> ${mine && html`<span class="chip accent">${t.settings.inUse}</span>`}
    <div class="muted small-text">${one.scopes.join(", ")} · ${one.id} · ${ago(one.created_at)}</div></div>
    ${one.revoked_at ? html`<span class="chip">${t.settings.revoked}</span>` : html`<button class="button small danger" onClick=${revoke}>${t.settings.revoke}</button>`}</li>`;
}

function MakeKey({ first, onMade }) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState(first ? "admin" : "predict");
  const make = async (event) => {
    event.preventDefault();
    if (first && !(await confirm({ title: t.settings.firstKeyTitle, text: t.settings.firstKeyText, action: t.settings.makeKey }))) return;
    try {
      const made = await post("/keys", { name: name.trim(), scopes: [scope] });
      if (first && scope === "admin") useKey(made.key);
      setName("");
      onMade(made);
    } catch (error) {
      complain(error);
    }
  };
  return html`<form class="inline-form" onSubmit=${make}>
    <label class="field"><span>${t.settings.keyName}</span><input class="input" required maxlength="100" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <label class="field"><span>${t.settings.scope}</span><select class="select" value=${scope} onChange=${(event) => setScope(event.target.value)}>
      ${Object.entries(t.settings.scopes).map(([value, text]) => html`<option value=${value} key=${value}>${text}</option>`)}</select></label>
    <button class="button">${t.settings.makeKey}</button></form>`;
}
