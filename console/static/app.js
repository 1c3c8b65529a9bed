// Starts the page: the frame, and the screen that the address names. A screen's module is loaded when it is first opened.
import { html, render, useEffect, useState } from "./html.js";
import { Dialogs } from "./components/dialog.js";
import { KeyGate } from "./components/key_gate.js";
import { Shell } from "./components/shell.js";
import { Empty, Loading } from "./components/states.js";
import { Toasts } from "./components/toasts.js";
import { startLive } from "./live.js";
import { route } from "./router.js";
import { keyWanted, model } from "./state.js";
import { t } from "./texts.js";

const MODULES = {
  teach: () => import("./screens/teach.js"),
  try: () => import("./screens/try.js"),
  classes: () => import("./screens/classes.js"),
  class_detail: () => import("./screens/class_detail.js"),
  inbox: () => import("./screens/inbox.js"),
  versions: () => import("./screens/versions.js"),
  map: () => import("./screens/map.js"),
  settings: () => import("./screens/settings.js"),
};
const loaded = {};

function screenOf({ screen, rest }) {
  if (screen === "") return "teach";
  if (screen === "classes" && rest.length > 0) return "class_detail";
  return screen;
}

function Page() {
  if (keyWanted.value) return html`<${KeyGate} /><${Toasts} />`;
  const name = screenOf(route.value);
  return html`<${Shell} screen=${name}><${Screen} name=${name} key=${`${name} ${model.value} ${route.value.rest.join("/")}`} /></${Shell}>
    <${Dialogs} /><${Toasts} />`;
}

function Screen({ name }) {
  const [, setReady] = useState(Boolean(loaded[name]));
  const [error, setError] = useState(null);
  useEffect(() => {
    document.title = `${t.nav[name] ?? t.classDetail.title} · protoquad`;
    if (!loaded[name] && MODULES[name]) {
      MODULES[name]().then((module) => ((loaded[name] = module.default), setReady(true)), setError);
    }
  }, [name]);
  if (!MODULES[name]) return html`<${Empty} icon="question" title=${t.notFound} />`;
  if (error) return html`<${Empty} icon="warning" title=${t.errors.title}><p>${t.errors.unreachableDetail}</p></${Empty}>`;
  return loaded[name] ? html`<${loaded[name]} />` : html`<${Loading} rows=${2} />`;
}

startLive();
const place = document.querySelector("#app");
place.replaceChildren();
render(html`<${Page} />`, place);
