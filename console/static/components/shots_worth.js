// Would more shots help? Answered with the model's own measured classes, by how many shots they have.
import { get } from "../api.js";
import { wilson } from "../format.js";
import { html } from "../html.js";
import { useLoaded } from "../loading.js";
import { head } from "../state.js";
import { t } from "../texts.js";
import { Interval } from "./interval.js";

const BUCKETS = [
  [1, 2],
  [3, 4],
  [5, 9],
  [10, 19],
  [20, null],
];
const ADVISED = 5;

export function ShotsWorth({ one }) {
  const { data } = useLoaded((signal) => get("/classes", { sort: "shots", order: "desc", limit: 500 }, { signal }), [head.value]);
  const rows = byShots(data?.items ?? []);
  if (one.guarded) return null;
  return html`<section class="card"><h2>${t.classDetail.helpTitle}</h2>
    ${one.shots < ADVISED && html`<p>${t.classDetail.few(one.shots)}</p>`}
    ${rows.length < 2
      ? html`<p class="muted">${t.classDetail.notEnough}</p>`
      : html`<p class="muted small-text">${t.classDetail.byShots}</p><dl class="facts worth">${rows.map(
          (row) => html`<dt key=${row.from}>${t.classDetail.bucket(row.from, row.upTo)}</dt><dd><${Interval} accuracy=${row} /></dd>`,
        )}</dl>`}
  </section>`;
}

/** Rows with {from, upTo, images, right, low, high}; `low` and `high` are the interval of the share that is right. */
function byShots(classes) {
  const rows = BUCKETS.map(([from, upTo]) => {
    const inside = classes.filter((one) => one.accuracy?.images && !one.guarded && one.shots >= from && (upTo === null || one.shots <= upTo));
    const images = inside.reduce((sum, one) => sum + one.accuracy.images, 0);
    const right = inside.reduce((sum, one) => sum + one.accuracy.right, 0);
    const [low, high] = wilson(right, images);
    return { from, upTo, images, right, low, high };
  });
  return rows.filter((row) => row.images);
}
