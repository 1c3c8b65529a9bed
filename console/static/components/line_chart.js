// A small line chart in SVG: one line for each series, its name at the end of the line.
import { html } from "../html.js";

const WIDTH = 320;
const HEIGHT = 96;
const MARGIN = 6;

/** `series` is [{name, values}]; gaps are null. Each line has a scale of its own unless `shared`. */
export function LineChart({ series, label, shared = false, height = HEIGHT }) {
  const all = series.flatMap((one) => one.values).filter((value) => value !== null);
  if (all.length < 2) return null;
  const longest = Math.max(...series.map((one) => one.values.length));
  const scale = (values) => {
    const numbers = shared ? all : values.filter((value) => value !== null);
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    return (value) => MARGIN + (height - 2 * MARGIN) * (high === low ? 0.5 : 1 - (value - low) / (high - low));
  };
  const across = (index) => MARGIN + (WIDTH - 2 * MARGIN) * (longest === 1 ? 0 : index / (longest - 1));
  return html`<figure class="line-chart">
    <svg viewBox=${`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" role="img" aria-label=${label}>
      ${series.map(({ name, values }, index) => {
        const down = scale(values);
        const points = values.map((value, at) => (value === null ? null : `${across(at).toFixed(1)},${down(value).toFixed(1)}`));
        return html`<polyline key=${name} class=${`line line-${index % 4}`} points=${points.filter(Boolean).join(" ")} />`;
      })}
    </svg>
    <figcaption class="row small-text">
      ${series.map(
        ({ name, values }, index) => html`<span key=${name} class="legend"><i class=${`dot line-${index % 4}`}></i>${name} <b>${values.filter((value) => value !== null).at(-1)?.toPrecision(3)}</b></span>`,
      )}
    </figcaption>
  </figure>`;
}
