// A session, live: its stage, its losses as lines, and what it gained.
import { follow, get } from "../api.js";
import { points } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { to } from "../router.js";
import { t } from "../texts.js";
import { Icon } from "./icon.js";
import { LineChart } from "./line_chart.js";

const STAGES = ["queued", "loading", "looking", "learning", "publishing"];
const OVER = ["succeeded", "failed", "cancelled"];
const SECONDS_UNTIL_DOUBT = 8; // a session that is queued this long: is there a worker?
const EMPTY = { stage: "queued", fraction: null, losses: {}, outcome: null, attempt: 0 };

function after(state, { event, data }) {
  if (OVER.includes(event)) return { ...state, stage: event, outcome: data };
  if (event === "progress") {
    const losses = { ...state.losses };
    for (const [name, value] of Object.entries(data.losses ?? {})) losses[name] = [...(losses[name] ?? []), value];
    return { ...state, stage: data.stage ?? state.stage, fraction: data.fraction ?? null, losses };
  }
  if (event === "running") return { ...state, stage: "loading", attempt: data.attempt ?? 1, losses: {} };
  return { ...EMPTY, attempt: state.attempt };
}

export function SessionProgress({ id, onOver }) {
  const [state, setState] = useState(EMPTY);
  const [version, setVersion] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    setState(EMPTY);
    setVersion(null);
    const hear = (event) => {
      setState((now) => after(now, event));
      if (!OVER.includes(event.event)) return false;
      onOver?.(event);
      if (event.data.version) get(`/versions/${event.data.version}`, {}, { signal: stop.signal }).then(setVersion, () => {});
      return true;
    };
    follow(`/sessions/${id}/events`, hear, { signal: stop.signal, endless: true }).catch(setError);
    return () => stop.abort();
  }, [id]);
  const over = OVER.includes(state.stage);
  const step = STAGES.indexOf(state.stage);
  const done = over ? 1 : (step + (state.fraction ?? 0)) / STAGES.length;
  const series = Object.entries(state.losses).map(([name, values]) => ({ name: t.session.losses[name] ?? name, values }));
  if (error) return html`<p class="note bad" role="alert">${error.message}</p>`;
  return html`<section class="card session" aria-label=${t.session.title} data-stage=${state.stage}>
    <div class="card-head">
      <h2>${over ? t.session.over[state.stage] : t.session.title}</h2>
      <span class="muted small-text">${t.session.number(id)}${state.attempt > 1 ? ` · ${t.session.attempt(state.attempt)}` : ""}</span>
    </div>
    ${!over && html`<p class="muted" aria-live="polite">${t.session.stages[state.stage]}</p>
      <div class=${`progress ${step === 0 ? "waiting" : ""}`}><span style=${{ width: `${Math.max(4, 100 * done)}%` }}></span></div>`}
    ${step === 0 && html`<${WorkerDoubt} />`}
    ${series.length > 0 && html`<${LineChart} series=${series} label=${t.session.chart} />`}
    ${over && html`<${Outcome} stage=${state.stage} outcome=${state.outcome} version=${version} />`}
  </section>`;
}

/** A session that waits long may wait for a worker that is not there. */
function WorkerDoubt() {
  const [workers, setWorkers] = useState(null);
  useEffect(() => {
    const look = () => get("/about").then((about) => setWorkers(about.workers ?? null), () => {});
    const timer = setInterval(look, 1000 * SECONDS_UNTIL_DOUBT);
    return () => clearInterval(timer);
  }, []);
  if (!workers || workers.alive) return null;
  return html`<p class="note warn" role="status"><${Icon} name="warning" />${t.session.noWorker}</p>`;
}

function Outcome({ stage, outcome, version }) {
  if (stage === "failed") return html`<p class="note bad" role="alert">${outcome.error ?? t.session.failed}</p>`;
  if (stage === "cancelled") return html`<p class="muted">${t.session.cancelled}</p>`;
  const rejected = outcome.verdict === "rejected";
  return html`<div class="stack">
    ${version && html`<${Gain} version=${version} />`}
    <p class=${`note ${rejected ? "warn" : "good"}`}><${Icon} name=${rejected ? "warning" : "check"} />
      <span>${rejected ? t.session.rejected : t.session.promoted(outcome.version)} ${outcome.reason && html`<span class="small-text">${t.session.because(outcome.reason)}</span>`}</span></p>
    <a class="small-text" href=${to("versions")}>${t.session.seeVersions}</a>
  </div>`;
}

/** "Refined: 86 → 89 % on held-out images". */
export function Gain({ version }) {
  const before = version.details?.accuracy_before ?? {};
  const now = version.accuracy ?? {};
  const rows = ["new", "old"].filter((which) => typeof now[which] === "number");
  return html`<ul class="gains">
    ${rows.map((which) => {
      const gained = typeof before[which] === "number" ? now[which] - before[which] : 0;
      return html`<li key=${which}><span class="muted small-text">${t.session.gain[which]}</span>
        <b>${typeof before[which] === "number" && html`${points(before[which], 0)} <span class="muted" aria-hidden="true">→</span><span class="hidden-text">${t.session.to}</span> `}${points(now[which], 0)}</b>
        ${gained !== 0 && html`<span class=${`chip ${gained > 0 ? "good" : "bad"}`}>${gained > 0 ? "+" : "−"}${Math.abs(gained).toFixed(1)}</span>`}</li>`;
    })}
  </ul>`;
}
