// The frame of every screen: navigation, model, theme, help; on phones a bar at the bottom.
import { get } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { go, route, to } from "../router.js";
import { useShortcuts } from "../shortcuts.js";
import { chooseTheme, inboxTotal, model, reachable, theme } from "../state.js";
import { t } from "../texts.js";
import { showDialog } from "./dialog.js";
import { Icon } from "./icon.js";
import { undoNewest } from "./toasts.js";

export const SCREENS = ["teach", "try", "classes", "inbox", "versions", "map", "settings"];
const ON_PHONES = 4; // the others are behind "more"
const LETTERS = { t: "teach", y: "try", c: "classes", i: "inbox", v: "versions", m: "map", s: "settings" };
const THEMES = { system: ["light", "auto"], light: ["dark", "sun"], dark: ["system", "moon"] };
const release = document.querySelector("link[rel=icon]").getAttribute("href");

export function Shell({ screen, children }) {
  const goTo = Object.fromEntries(Object.entries(LETTERS).map(([letter, name]) => [`g ${letter}`, () => go(name)]));
  useShortcuts({ ...goTo, "?": showHelp, e: () => showSnippets(screen), z: () => undoNewest() });
  return html`<a class="skip" href="#screen" onClick=${skip}>${t.skip}</a>
    <div class="shell">
      <aside class="rail" aria-label=${t.navigation}>
        <a class="brand" href=${to("teach")}><img src=${release} alt="" width="28" height="28" /><span>protoquad</span></a>
        <nav aria-label=${t.screens}>
          <ul>
            ${SCREENS.map((name, index) => html`<li class=${`nav-item ${index >= ON_PHONES ? "secondary" : ""}`} key=${name}><${NavLink} name=${name} here=${screen} /></li>`)}
            <li class="nav-item phone-only">
              <button class="nav-link" aria-current=${SCREENS.indexOf(screen) >= ON_PHONES ? "page" : null} onClick=${() => showDialog(t.more, More)}>
                <${Icon} name="more" /><span class="label">${t.more}</span>
              </button>
            </li>
          </ul>
        </nav>
        <div class="rail-foot"><${ModelSwitch} /><${Tools} screen=${screen} /></div>
      </aside>
      <div>
        ${!reachable.value && html`<div class="offline" role="alert"><${Icon} name="warning" />${t.offline}</div>`}
        <main class="screen" id="screen" tabindex="-1">${children}</main>
      </div>
    </div>`;
}

function skip(event) {
  event.preventDefault();
  document.querySelector("#screen").focus();
}

function NavLink({ name, here, close }) {
  const waiting = name === "inbox" && inboxTotal.value;
  const current = here === name || (here === "class_detail" && name === "classes");
  return html`<a class="nav-link" href=${to(name)} aria-current=${current ? "page" : null} onClick=${close}>
    <${Icon} name=${name} /><span class="label">${t.nav[name]}</span>
    ${waiting ? html`<span class="badge" aria-label=${t.inbox.waiting(waiting)}>${waiting > 99 ? "99+" : waiting}</span>` : null}
  </a>`;
}

function More({ close }) {
  return html`<div class="stack">
    ${SCREENS.slice(ON_PHONES).map((name) => html`<${NavLink} name=${name} here=${route.value.screen} close=${close} />`)}
    <hr />
    <${ModelSwitch} />
    <${Tools} screen=${route.value.screen} />
  </div>`;
}

function Tools({ screen }) {
  const [next, icon] = THEMES[theme.value] ?? THEMES.system;
  return html`<div class="rail-tools">
    <button class="icon-button" aria-label=${t.theme[theme.value]} title=${t.theme[theme.value]} onClick=${() => chooseTheme(next)}><${Icon} name=${icon} /></button>
    <button class="icon-button" aria-label=${t.snippets.title} title=${`${t.snippets.title} (E)`} onClick=${() => showSnippets(screen)}><${Icon} name="code" /></button>
    <button class="icon-button" aria-label=${t.help.title} title=${`${t.help.title} (?)`} onClick=${showHelp}><${Icon} name="question" /></button>
  </div>`;
}

function ModelSwitch() {
  const [models, setModels] = useState([]);
  useEffect(() => {
    get("/models").then((page) => setModels(page.items), () => {});
  }, [model.value, route.value.screen]);
  if (models.length < 2 && model.value === "default") return null;
  const names = models.some((one) => one.name === model.value) ? models : [{ name: model.value }, ...models];
  const choose = (event) => go(route.peek().screen || "teach", { model: event.target.value === "default" ? "" : event.target.value });
  return html`<label class="field model-switch"><span>${t.model}</span>
    <select class="select" value=${model.value} onChange=${choose}>
      ${names.map((one) => html`<option value=${one.name} key=${one.name}>${one.name}</option>`)}
    </select>
  </label>`;
}

async function showSnippets(screen) {
  const { Snippets } = await import("./snippets.js");
  showDialog(t.snippets.title, () => html`<${Snippets} screen=${screen} />`, { wide: true });
}

function showHelp() {
  const Keys = () => html`<dl class="facts">
    ${t.help.keys.map(([keys, text]) => html`<dt>${keys.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${text}</dd>`)}
  </dl>`;
  showDialog(t.help.title, Keys);
}
