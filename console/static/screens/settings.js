// Settings: models, keys and health, each in a file of its own.
import { Health } from "../components/health.js";
import { Keys } from "../components/keys.js";
import { Models } from "../components/models.js";
import { html } from "../html.js";
import { t } from "../texts.js";

export default function Settings() {
  return html`<header class="screen-head"><div><h1>${t.settings.title}</h1><p>${t.settings.text}</p></div></header>
    <div class="settings-grid"><${Models} /><${Keys} /><${Health} /></div>`;
}
