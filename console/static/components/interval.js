// A share with its 95 % interval, as a small line: the band is where the truth lies, the mark is what was measured.
import { percent } from "../format.js";
import { html } from "../html.js";
import { t } from "../texts.js";

export function Interval({ accuracy, words = true }) {
  if (!accuracy?.images) return html`<span class="muted small-text">${t.classes.unmeasured}</span>`;
  const share = accuracy.right / accuracy.images;
  const label = `${percent(share)}, ${t.classes.accuracy(accuracy)}, ${t.classes.interval(accuracy.low, accuracy.high)}`;
  return html`<span class="interval" title=${label}>
    <span class="interval-line" role="img" aria-label=${label}><span class="interval-band" style=${{ left: percent(accuracy.low, 1).replace(" ", ""), right: percent(1 - accuracy.high, 1).replace(" ", "") }}></span><i style=${{ left: percent(share, 1).replace(" ", "") }}></i></span>
    ${words && html`<b class="small-text">${percent(share)}</b>`}
  </span>`;
}
