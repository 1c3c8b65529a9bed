// Versions: the time line of a model, two of them compared, and the way back to an earlier one.
import { get, post } from "../api.js";
import { Compare } from "../components/compare.js";
import { confirm, showDialog } from "../components/dialog.js";
import { Icon } from "../components/icon.js";
import { LineChart } from "../components/line_chart.js";
import { Gain } from "../components/session_progress.js";
import { Failure, Loading } from "../components/states.js";
import { complain, say } from "../components/toasts.js";
import { ago, date, distance, points } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { head, may, newsOf } from "../state.js";
import { t } from "../texts.js";

const PAGE = 50;
const FOLD = 4; // a run of more versions of one kind is folded
const ICONS = { base: "spark", provisional: "teach", incremental: "versions", rollback: "undo", delete: "trash" };

export default function Versions() {
  const [older, setOlder] = useState([]);
  const [next, setNext] = useState(null);
  const [picked, setPicked] = useState([]);
  const [unfolded, setUnfolded] = useState(new Set());
  const { data, error, reload } = useLoaded((signal) => get("/versions", { limit: PAGE }, { signal }), [head.value, newsOf("version")]);
  useEffect(() => {
    if (!data) return;
    setOlder([]);
    setNext(data.next);
  }, [data]);
  const more = async () => {
    const page = await get("/versions", { limit: PAGE, cursor: next }).catch(complain);
    if (!page) return;
    setOlder([...older, ...page.items]);
    setNext(page.next);
  };
  if (error && !data) return html`<${Failure} error=${error} retry=${reload} />`;
  const versions = [...(data?.items ?? []), ...older];
  const pick = (number) => setPicked(picked.includes(number) ? picked.filter((one) => one !== number) : [...picked.slice(-1), number]);
  const [from, to] = [...picked].sort((one, other) => one - other);
  const compare = () => showDialog(t.versions.compareTitle(from, to), () => html`<${Compare} from=${from} to=${to} />`, { wide: true });
  return html`
    <header class="screen-head"><div><h1>${t.versions.title}</h1><p>${t.versions.text}</p></div>
      <button class="button" disabled=${picked.length < 2} title=${t.versions.pickTwo} onClick=${compare}><${Icon} name="compare" />${picked.length === 2 ? t.versions.comparing(from, to) : t.versions.compare}</button></header>
    ${!data ? html`<${Loading} />` : html`<${Accuracy} versions=${versions} />
      <ol class="timeline">${folded(versions, unfolded).map((one) => (Array.isArray(one)
        ? html`<${Folded} key=${`folded ${one[0].number}`} some=${one} onOpen=${() => setUnfolded(new Set([...unfolded, ...one.map((each) => each.number)]))} />`
        : html`<${Version} key=${one.number} one=${one} all=${versions} picked=${picked.includes(one.number)} onPick=${() => pick(one.number)} onActivated=${reload} />`))}</ol>
      ${next && html`<div><button class="button" onClick=${more}>${t.versions.more}</button></div>`}`}`;
}

/** Long runs of versions that only taught a class are folded to their ends; a run is an array. */
function folded(versions, unfolded) {
  const shown = [];
  let run = [];
  const close = () => {
    if (run.length > FOLD) shown.push(run[0], run.slice(1, -1), run.at(-1));
    else shown.push(...run);
    run = [];
  };
  for (const one of versions) {
    if (one.kind === "provisional" && !one.active && !unfolded.has(one.number)) run.push(one);
    else {
      close();
      shown.push(one);
    }
  }
  close();
  return shown;
}

function Folded({ some, onOpen }) {
  return html`<li class="version folded"><span class="version-icon"><${Icon} name="more" size=${18} /></span>
    <button class="button small" onClick=${onOpen}>${t.versions.folded(some.length)}</button></li>`;
}

function Accuracy({ versions }) {
  const measured = versions.filter((one) => one.accuracy && one.verdict !== "rejected").reverse();
  if (measured.length < 3) return null;
  const series = ["old", "new"].map((which) => ({ name: which === "old" ? t.versions.old : t.versions.fresh, values: measured.map((one) => one.accuracy[which]) }));
  return html`<div class="card"><h2>${t.versions.chart}</h2><${LineChart} series=${series.filter((one) => one.values.some((value) => value !== null))} label=${t.versions.chart} shared /></div>`;
}

function Version({ one, all, picked, onPick, onActivated }) {
  const rejected = one.verdict === "rejected";
  const usable = one.kept && !rejected && !one.active;
  return html`<li class=${`version ${one.active ? "active" : ""} ${rejected ? "rejected" : ""}`} data-version=${one.number}>
    <span class="version-icon"><${Icon} name=${ICONS[one.kind] ?? "versions"} size=${18} /></span>
    <div class="version-body">
      <div class="row">
        <h2>${one.number} · ${t.versions.kinds[one.kind]}</h2>
        ${one.active && html`<span class="chip accent">${t.versions.active}</span>`}
        ${one.verdict && html`<span class=${`chip ${rejected ? "warn" : "good"}`}>${t.versions[one.verdict]}</span>`}
        ${!one.kept && html`<span class="chip">${t.versions.notKept}</span>`}
        <time class="muted small-text" datetime=${one.created_at} title=${date(one.created_at)}>${ago(one.created_at)}</time>
      </div>
      <p class="muted small-text">${summary(one)}</p>
      ${one.accuracy && html`<${Gain} version=${one} />`}
      ${one.details?.reason && html`<p class="small-text muted">${one.details.reason}</p>`}
    </div>
    <div class="version-actions">
      <label class="pick"><input type="checkbox" checked=${picked} onChange=${onPick} /><span class="hidden-text">${t.versions.pick(one.number)}</span></label>
      <button class="button small" onClick=${() => showDetails(one)}>${t.versions.details}</button>
      ${usable && may("admin") && html`<button class="button small" onClick=${() => activate(one, all, onActivated)}>${t.versions.activate(one.number < (head.value ?? Infinity))}</button>`}
    </div>
  </li>`;
}

function summary(one) {
  const parts = [t.versions.classes(one.classes)];
  if (typeof one.forgetting === "number") parts.push(t.versions.forgetting(one.forgetting));
  return parts.join(" · ");
}

function showDetails(one) {
  const unknown = one.details?.unknown ?? {};
  const facts = [
    [t.versions.threshold, one.threshold === null ? null : distance(one.threshold)],
    [t.versions.accepted, typeof unknown.known_accepted === "number" ? points(unknown.known_accepted) : null],
    [t.versions.strangers, typeof unknown.strangers_refused === "number" ? points(unknown.strangers_refused) : null],
    [t.versions.reason, one.details?.reason],
  ].filter(([, value]) => value);
  const Details = () => html`<dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
    <pre class="snippet" tabindex="0">${JSON.stringify(one.details, null, 2)}</pre>`;
  showDialog(`${one.number} · ${t.versions.kinds[one.kind]}`, Details, { wide: true });
}

async function activate(one, all, onActivated) {
  const now = all.find((other) => other.active);
  const gone = now ? Math.max(0, now.classes - one.classes) : 0;
  const agreed = await confirm({ title: t.versions.activateTitle(one.number), points: t.versions.activatePoints(gone), action: t.versions.activate(one.number < (now?.number ?? 0)) });
  if (!agreed) return;
  try {
    const active = await post(`/versions/${one.number}/activate`);
    head.value = active.number;
    say(t.versions.activated(active.number), "good");
    onActivated();
  } catch (error) {
    complain(error);
  }
}
