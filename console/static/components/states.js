// What a screen shows when there is nothing to show: still loading, an error, nothing yet, or an older server.
import { html } from "../html.js";
import { t } from "../texts.js";
import { Icon } from "./icon.js";

export function Empty({ icon, title, children }) {
  return html`<div class="empty">
    <span class="empty-icon"><${Icon} name=${icon} size=${28} /></span>
    <h2>${title}</h2>
    ${children}
  </div>`;
}

export function Failure({ error, retry }) {
  if (error.missingRoute) {
    return html`<${Empty} icon="question" title=${t.missing.title}><p>${t.missing.text}</p></${Empty}>`;
  }
  if (error.status === 403) {
    return html`<${Empty} icon="key" title=${error.kind === "insufficient-scope" ? t.forbidden.title : error.title}><p>${error.message}</p></${Empty}>`;
  }
  return html`<${Empty} icon="warning" title=${error.title || t.errors.title}>
    <p>${error.message}</p>
    ${retry && html`<button class="button" onClick=${retry}>${t.tryAgain}</button>`}
  </${Empty}>`;
}

export function Loading({ rows = 3 }) {
  return html`<div class="loading" role="status" aria-label=${t.loading}>
    ${Array.from({ length: rows }, () => html`<span class="skeleton"></span>`)}
  </div>`;
}
