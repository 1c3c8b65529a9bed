// A class: how good it is, whether more shots would help, and its shots: looked at, added, moved, deleted.
import { get, patch, post, Problem, remove } from "../api.js";
import { ClassCombo } from "../components/class_combo.js";
import { confirm, showDialog } from "../components/dialog.js";
import { Icon } from "../components/icon.js";
import { Interval } from "../components/interval.js";
import { Shots } from "../components/shots.js";
import { ShotsWorth } from "../components/shots_worth.js";
import { Failure, Loading } from "../components/states.js";
import { complain, say } from "../components/toasts.js";
import { percent } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { go, route, to } from "../router.js";
import { head, may, newsOf } from "../state.js";
import { t } from "../texts.js";
import { Status } from "./classes.js";

export default function ClassDetail() {
  const id = Number(route.value.rest[0]);
  const { data, error, reload, setData } = useLoaded((signal) => get(`/classes/${id}`, {}, { signal }), [id, head.value, newsOf("taught", "renamed", "version", "deleted")]);
  if (error && !data) return html`<${Back} /><${Failure} error=${error} retry=${reload} />`;
  if (!data) return html`<${Back} /><${Loading} />`;
  return html`<${Back} />
    <header class="screen-head"><${Name} one=${data} onRenamed=${setData} />
      ${may("teach") && html`<div class="head-actions">
        <button class="button" onClick=${() => merge(data)}><${Icon} name="merge" />${t.classDetail.merge}</button>
        <button class="button danger" onClick=${() => removeClass(data)}><${Icon} name="trash" />${t.classDetail.remove}</button>
      </div>`}</header>
    ${data.guarded && html`<p class="note"><${Icon} name="question" />${t.classDetail.guardedText}</p>`}
    <div class="detail-grid"><${Accuracy} one=${data} /><${ShotsWorth} one=${data} /></div>
    <${Shots} one=${data} onChanged=${reload} />`;
}

const Back = () => html`<a class="row small-text" href=${to("classes")}><${Icon} name="back" size=${16} />${t.classDetail.back}</a>`;

function Name({ one, onRenamed }) {
  const [name, setName] = useState(null);
  const field = useRef(null);
  useEffect(() => field.current?.select(), [name === null]);
  const save = async (event) => {
    event.preventDefault();
    try {
      const renamed = await patch(`/classes/${one.id}`, { name: name.trim() });
      onRenamed((now) => ({ ...now, ...renamed }));
      say(t.classDetail.renamed(renamed.name), "good");
      setName(null);
    } catch (error) {
      complain(error);
    }
  };
  if (name === null) {
    return html`<div><div class="row"><h1>${one.name}</h1>
      ${may("teach") && html`<button class="icon-button" aria-label=${t.classDetail.rename} title=${t.classDetail.rename} onClick=${() => setName(one.name)}><${Icon} name="edit" size=${18} /></button>`}
      <${Status} one=${one} /></div>
      <p>${one.guarded ? t.classes.guards(one.shots) : t.classes.shots(one.shots)} · ${t.classDetail.since(one.since)}</p></div>`;
  }
  return html`<form class="name-form" onSubmit=${save} onKeyDown=${(event) => event.key === "Escape" && setName(null)}>
    <label><span class="hidden-text">${t.settings.name}</span><input ref=${field} class="input" maxlength="200" required value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <button class="button primary">${t.classDetail.save}</button><button type="button" class="button" onClick=${() => setName(null)}>${t.cancel}</button>
  </form>`;
}

function Accuracy({ one }) {
  const measured = one.accuracy?.images;
  return html`<section class="card"><h2>${t.classDetail.accuracyTitle}</h2>
    ${measured
      ? html`<span class="big-number">${percent(one.accuracy.right / one.accuracy.images)}</span><${Interval} accuracy=${one.accuracy} words=${false} />
        <p class="muted small-text">${t.classDetail.measured(one.accuracy)} · 95 %: ${t.classes.interval(one.accuracy.low, one.accuracy.high)}</p>`
      : html`<p class="muted">${t.classDetail.unmeasured}</p>`}
  </section>`;
}

function merge(one) {
  const Choose = ({ close }) => {
    const into = async (other) => {
      close();
      try {
        await post(`/classes/${one.id}/merge`, { into: other.id });
        say(t.classDetail.merged(other.name), "good");
        go(`classes/${other.id}`);
      } catch (error) {
        complain(error instanceof Problem && error.missingRoute ? new Error(t.missing.title) : error);
      }
    };
    return html`<p>${t.classDetail.mergeText}</p><div class="combo-room"><${ClassCombo} label=${t.classDetail.moveTo} fresh=${false} except=${one.id} onChoose=${into} focus /></div>`;
  };
  showDialog(t.classDetail.mergeTitle(one.name), Choose);
}

async function removeClass(one) {
  const agreed = await confirm({ title: t.classDetail.removeTitle(one.name), points: t.classDetail.removePoints, action: t.classDetail.remove, danger: true });
  if (!agreed) return;
  try {
    await remove(`/classes/${one.id}`);
    say(t.classDetail.removed(one.name));
    go("classes");
  } catch (error) {
    complain(error);
  }
}
