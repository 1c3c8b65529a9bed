// Two versions side by side: accuracy by class, classes that only one knows, and what would change in the inbox.
import { get } from "../api.js";
import { percent, wilson } from "../format.js";
import { html } from "../html.js";
import { useLoaded } from "../loading.js";
import { t } from "../texts.js";
import { Interval } from "./interval.js";
import { ServerImage } from "./server_image.js";
import { Failure, Loading } from "./states.js";

const MOST = 50;

export function Compare({ from, to }) {
  const { data, error, reload } = useLoaded((signal) => get("/versions/compare", { from, to }, { signal }), [from, to]);
  if (error) return html`<${Failure} error=${error.status === 422 ? Object.assign(error, { status: 405 }) : error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const different = data.classes.filter((one) => one.from && one.to && share(one.from) !== share(one.to));
  different.sort((one, other) => Math.abs(share(other.to) - share(other.from)) - Math.abs(share(one.to) - share(one.from)));
  return html`<div class="stack">
    ${["removed", "added"].map((which) => data[which].length > 0 && html`<p key=${which}><b>${t.versions[which]}:</b> ${data[which].map((one) => one.label).join(", ")}</p>`)}
    <h3>${t.versions.accuracyByClass}</h3>
    ${different.length === 0 ? html`<p class="muted">${t.versions.same}</p>` : html`<div class="table-scroll"><table class="table">
      <thead><tr><th>${t.versions.class}</th><th>${from}</th><th>${to}</th><th></th></tr></thead>
      <tbody>${different.slice(0, MOST).map((one) => html`<tr key=${one.class_id}><td>${one.label}</td><td><${Measured} one=${one.from} /></td><td><${Measured} one=${one.to} /></td><td class="number"><${Change} by=${share(one.to) - share(one.from)} /></td></tr>`)}</tbody>
    </table></div>`}
    <h3>${t.versions.samples}</h3>
    ${data.samples.length === 0 ? html`<p class="muted">${t.versions.noSamples}</p>` : html`<ul class="changes">${data.samples.map((one) => html`<li key=${one.sample_id}>
      <${ServerImage} path=${`/inbox/${one.sample_id}/thumbnail`} alt="" /><span class="small-text">${called(one.from)} <span class="muted">→</span> <b>${called(one.to)}</b></span></li>`)}</ul>`}
  </div>`;
}

const share = (one) => one.right / one.images;
const called = (one) => (one.unknown ? t.versions.unknown : one.label);

function Measured({ one }) {
  const [low, high] = wilson(one.right, one.images);
  return html`<${Interval} accuracy=${{ refused: 0, low, high, ...one }} />`;
}

function Change({ by }) {
  return html`<span class=${`chip ${by > 0 ? "good" : "bad"}`}>${by > 0 ? "+" : "−"}${percent(Math.abs(by))}</span>`;
}
