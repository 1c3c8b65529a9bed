// An answer: what it is and how sure, the nearest classes as bars, their distances against the threshold, and why.
import { distance, percent } from "../format.js";
import { html } from "../html.js";
import { to } from "../router.js";
import { t } from "../texts.js";
import { Icon } from "./icon.js";
import { ServerImage } from "./server_image.js";

export function Answer({ answer, title, keys = false, onThis }) {
  const [first] = answer.top;
  return html`<section class=${`card answer ${answer.unknown ? "unknown" : ""}`} aria-label=${title}>
    <div class="card-head"><span class="muted small-text">${title}</span><span class="chip">${t.try.version(answer.version)}</span></div>
    <p class="verdict" aria-live="polite" data-label=${answer.label ?? ""}>
      ${answer.unknown ? html`<${Icon} name="question" size=${30} /><span>${t.try.unknown}</span>` : html`<span>${answer.label}</span><span class="sure">${percent(answer.confidence)}</span>`}
    </p>
    ${answer.unknown && html`<p class="muted">${first ? t.try.unknownText(first.label) : t.try.knowsNothing}</p>`}
    ${answer.top.length > 0 && html`<${Bars} top=${answer.top} keys=${keys} onThis=${onThis} />
      <${Distances} top=${answer.top} threshold=${answer.limit} />`}
    ${answer.neighbours?.length > 0 && html`<${Neighbours} neighbours=${answer.neighbours} />`}
  </section>`;
}

function Bars({ top, keys, onThis }) {
  return html`<ol class="bars" aria-label=${t.try.bars}>
    ${top.map(
      (one, index) => html`<li key=${one.class_id}>
        <span class="bar-name">${one.label}</span>
        <span class="bar" aria-hidden="true"><span style=${{ width: `${Math.max(0.5, 100 * one.confidence)}%` }}></span></span>
        <span class="bar-number">${percent(one.confidence)}</span>
        ${keys && html`<button class="bar-key" aria-label=${t.try.thisIs(one.label)} title=${t.try.thisIs(one.label)} onClick=${() => onThis({ id: one.class_id, name: one.label })}><kbd>${index + 1}</kbd></button>`}
      </li>`,
    )}
  </ol>`;
}

/** The distances on one line, with the threshold: what lies to its right is too far to be known. */
function Distances({ top, threshold }) {
  const farthest = Math.max(...top.map((one) => one.distance), threshold ?? 0) * 1.12 || 1;
  const at = (value) => `${(100 * value) / farthest}%`;
  const label = `${t.try.distances}: ${top.map((one) => `${one.label} ${distance(one.distance)}`).join(", ")}${threshold ? `; ${t.try.threshold} ${distance(threshold)}` : ""}`;
  return html`<figure class="distances" role="img" aria-label=${label}>
    <div class="distance-line" aria-hidden="true">
      ${threshold && html`<span class="distance-known" style=${{ width: at(threshold) }}></span><span class="distance-threshold" style=${{ left: at(threshold) }}></span>`}
      ${top.map((one, index) => html`<i key=${one.class_id} class=${index === 0 ? "first" : ""} style=${{ left: at(one.distance) }}></i>`)}
    </div>
    <figcaption class="small-text muted" aria-hidden="true"><span>${t.try.nearest(distance(top[0].distance))}</span>${threshold && html`<span>${t.try.thresholdAt(distance(threshold))}</span>`}</figcaption>
  </figure>`;
}

function Neighbours({ neighbours }) {
  return html`<div class="stack"><h3>${t.try.why}</h3>
    <ul class="neighbours">
      ${neighbours.map(
        (one) => html`<li key=${`${one.class_id}-${one.shot_id}`}><a href=${to(`classes/${one.class_id}`)} title=${one.label}>
          <${ServerImage} path=${`/classes/${one.class_id}/shots/${one.shot_id}/thumbnail`} alt=${t.try.shotOf(one.label)} />
          <span class="small-text">${one.label}</span><span class="small-text muted">${distance(one.distance)}</span></a></li>`,
      )}
    </ul></div>`;
}
