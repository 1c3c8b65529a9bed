// Which classes are taken for which: a matrix of the most confused ones; a cell opens its images.
import { get, Problem } from "../api.js";
import { html } from "../html.js";
import { useLoaded } from "../loading.js";
import { head } from "../state.js";
import { t } from "../texts.js";
import { showDialog } from "./dialog.js";
import { ServerImage } from "./server_image.js";
import { Empty, Failure, Loading } from "./states.js";

const MOST = 16; // classes in the matrix

export function Confusion() {
  const { data, error, reload } = useLoaded((signal) => (head.value === null ? null : get(`/versions/${head.value}/accuracy`, {}, { signal })), [head.value]);
  if (error instanceof Problem && error.status === 409) return html`<${Empty} icon="versions" title=${t.confusion.unmeasured}><p>${error.message}</p></${Empty}>`;
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  if (!data.images) return html`<${Empty} icon="versions" title=${t.confusion.unmeasured}><p>${t.confusion.unmeasuredText}</p></${Empty}>`;
  return html`<div class="stack">
    <p class="muted">${t.confusion.text(data.measured_at_version ?? data.version, data.images)} <b>${t.confusion.total(data)}</b></p>
    ${data.confused.length === 0 ? html`<${Empty} icon="check" title=${t.confusion.none}><p>${t.confusion.noneText}</p></${Empty}>` : html`<div class="two-columns"><${Matrix} data=${data} /><${Pairs} confused=${data.confused} /></div>`}
  </div>`;
}

function Matrix({ data }) {
  const names = new Map();
  for (const one of data.confused) {
    if (names.size < MOST) names.set(one.class_id, one.label);
    if (names.size < MOST) names.set(one.as_class_id, one.as_label);
  }
  const right = new Map(data.classes.map((one) => [one.class_id, one]));
  const cells = new Map(data.confused.map((one) => [`${one.class_id} ${one.as_class_id}`, one]));
  const most = Math.max(...data.confused.map((one) => one.count));
  const ids = [...names.keys()];
  return html`<div class="card table-scroll" tabindex="0" role="region" aria-label=${t.confusion.matrix}><table class="matrix">
    <thead><tr><th><span class="hidden-text">${t.confusion.truth}</span></th>${ids.map((id) => html`<th scope="col" key=${id}><span>${names.get(id)}</span></th>`)}</tr></thead>
    <tbody>${ids.map((row) => html`<tr key=${row}><th scope="row">${names.get(row)}</th>
      ${ids.map((column) => {
        if (row === column) return html`<td key=${column} class="diagonal">${right.get(row)?.right ?? ""}</td>`;
        const cell = cells.get(`${row} ${column}`);
        if (!cell) return html`<td key=${column}></td>`;
        return html`<td key=${column}><button class="cell" style=${{ "--heat": cell.count / most }} aria-label=${t.confusion.cell(cell)} title=${t.confusion.cell(cell)} onClick=${() => showCell(cell)}>${cell.count}</button></td>`;
      })}</tr>`)}
    </tbody></table></div>`;
}

function Pairs({ confused }) {
  return html`<section class="card"><h2>${t.confusion.pairs}</h2><ul class="stack">
    ${confused.slice(0, 12).map((one) => html`<li key=${`${one.class_id} ${one.as_class_id}`}><button class="pair" onClick=${() => showCell(one)}>
      <span><b>${one.label}</b> <span class="muted">${t.confusion.answered}</span> <b>${one.as_label}</b></span><span class="chip">${one.count}</span></button></li>`)}
  </ul></section>`;
}

function showCell(cell) {
  const Images = () =>
    cell.shots?.length
      ? html`<ul class="thumbs">${cell.shots.map((one) => html`<li class="thumb" key=${one.shot_id}><${ServerImage} path=${`/classes/${one.class_id}/shots/${one.shot_id}/thumbnail`} alt=${t.confusion.cell({ ...cell, count: 1 })} /></li>`)}</ul>`
      : html`<p class="muted">${t.confusion.noPictures}</p>`;
  showDialog(t.confusion.cell(cell), Images, { wide: true });
}
