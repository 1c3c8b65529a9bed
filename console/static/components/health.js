// Health: what runs, what waits, what is allowed. Asked again every few seconds while it is shown.
import { get } from "../api.js";
import { ago, bytes, count, duration } from "../format.js";
import { html, useEffect } from "../html.js";
import { useLoaded } from "../loading.js";
import { who } from "../state.js";
import { t } from "../texts.js";
import { Failure, Loading } from "./states.js";

const SECONDS = 5;

export function Health() {
  const { data, error, reload } = useLoaded((signal) => get("/about", {}, { signal }));
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && reload(), 1000 * SECONDS);
    return () => clearInterval(timer);
  }, []);
  return html`<section class="card" aria-labelledby="health-title"><h2 id="health-title">${t.settings.health}</h2>
    ${error && !data ? html`<${Failure} error=${error} retry=${reload} />` : !data ? html`<${Loading} rows=${2} />` : html`
      <dl class="facts">${facts(data).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
      <h3>${t.settings.limits}</h3>
      <dl class="facts small-text">${Object.entries(data.limits).map(([name, value]) => html`<dt key=${name}>${t.settings.limitNames[name] ?? name}</dt><dd>${/bytes/.test(name) ? bytes(value) : count(value)}</dd>`)}</dl>`}
    <p class="small-text"><a href="/docs">${t.settings.api}</a></p>
  </section>`;
}

function facts(about) {
  const { alive, last_seen: seen } = about.workers;
  return [
    ...(who.value ? [[t.settings.you, t.settings.youText(who.value)]] : []),
    [t.settings.release, about.release],
    [t.settings.network, about.backbone],
    [t.settings.engine, `${about.engine}, ${about.device}`],
    [t.settings.workers, html`<span class=${alive ? "" : "bad"}>${t.settings.workersAlive(alive)}</span>${!alive && seen ? html` <span class="muted">(${ago(seen)})</span>` : ""}`],
    [t.settings.queue, t.settings.queueText(about.queue)],
    [t.settings.memory, bytes(about.memory_bytes)],
    [t.settings.uptime, duration(about.uptime_seconds)],
    [t.settings.capture, about.capture],
  ];
}
