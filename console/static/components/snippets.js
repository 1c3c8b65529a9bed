// What is on the screen, in curl and in Python: for those who go on with a program.
import { html, useState } from "../html.js";
import { route } from "../router.js";
import { model, who } from "../state.js";
import { t } from "../texts.js";
import { say } from "./toasts.js";

/** Method, path, form or JSON of the request that a screen stands for. */
function request(screen) {
  const id = route.peek().rest[0];
  const requests = {
    teach: { method: "POST", path: "/classes", form: { name: "snowy owl", shots: ["owl-1.jpg", "owl-2.jpg"] } },
    try: { method: "POST", path: "/predict", form: { images: ["image.jpg"] } },
    classes: { method: "GET", path: "/classes?sort=accuracy&limit=50" },
    class_detail: { method: "GET", path: `/classes/${id}/shots` },
    inbox: { method: "GET", path: "/inbox?sort=margin" },
    versions: { method: "GET", path: "/versions" },
    map: { method: "GET", path: "/versions/1/map" },
    settings: { method: "GET", path: "/about", shared: true },
  };
  return requests[screen] ?? requests.teach;
}

export function Snippets({ screen }) {
  const [language, setLanguage] = useState("curl");
  const wanted = request(screen);
  const address = location.origin + (model.value === "default" || wanted.shared ? "" : `/models/${model.value}`) + wanted.path;
  const keyed = Boolean(who.value?.keys_required);
  const text = language === "curl" ? curl(wanted, address, keyed) : python(wanted, address, keyed);
  const copy = () => navigator.clipboard?.writeText(text).then(() => say(t.snippets.copied));
  return html`<div class="stack">
    <div class="row spread"><div class="segments" role="group" aria-label=${t.snippets.title}>
      ${["curl", "python"].map((one) => html`<button key=${one} aria-pressed=${language === one} onClick=${() => setLanguage(one)}>${t.snippets[one]}</button>`)}</div>
      <button class="button small" onClick=${copy}>${t.snippets.copy}</button></div>
    <pre class="snippet" tabindex="0"><code>${text}</code></pre>
    ${keyed && html`<p class="muted small-text">${t.snippets.key}</p>`}
  </div>`;
}

function curl({ method, form }, address, keyed) {
  const parts = ["curl"];
  if (keyed) parts.push('-H "Authorization: Bearer $PROTOQUAD_KEY"');
  if (method !== "GET" && !form) parts.push(`-X ${method}`);
  for (const [name, value] of Object.entries(form ?? {})) {
    for (const one of [value].flat()) parts.push(Array.isArray(value) ? `-F ${name}=@${one}` : `-F ${name}='${one}'`);
  }
  return [...parts, `'${address}'`].join(" \\\n  ");
}

function python({ method, form }, address, keyed) {
  const lines = ["import httpx", ""];
  const options = [];
  if (keyed) {
    lines.unshift("import os");
    options.push('headers={"Authorization": f"Bearer {os.environ[\'PROTOQUAD_KEY\']}"}');
  }
  const texts = Object.entries(form ?? {}).filter(([, value]) => !Array.isArray(value));
  const files = Object.entries(form ?? {}).flatMap(([name, value]) => (Array.isArray(value) ? value.map((one) => `("${name}", open("${one}", "rb"))`) : []));
  if (texts.length) options.push(`data=${JSON.stringify(Object.fromEntries(texts))}`);
  if (files.length) options.push(`files=[${files.join(", ")}]`);
  const call = [`"${address}"`, ...options].join(",\n    ");
  return [...lines, `answer = httpx.${method.toLowerCase()}(\n    ${call},\n)`, "answer.raise_for_status()", "print(answer.json())"].join("\n");
}
