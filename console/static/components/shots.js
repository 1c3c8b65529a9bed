// The shots of a class: which are unlike the others, which do harm; selected ones can be moved or deleted, with undo.
import { getItems, post, remove } from "../api.js";
import { chosen, useDropAndPaste } from "../file_sources.js";
import { distance } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { useShortcuts } from "../shortcuts.js";
import { head, may } from "../state.js";
import { t } from "../texts.js";
import { ClassCombo } from "./class_combo.js";
import { showDialog } from "./dialog.js";
import { Icon } from "./icon.js";
import { ServerImage } from "./server_image.js";
import { Failure, Loading } from "./states.js";
import { complain, say, undoable } from "./toasts.js";

const PAGE = 100;

export function Shots({ one, onChanged }) {
  const [limit, setLimit] = useState(PAGE);
  const { data, error, reload } = useLoaded((signal) => getItems(`/classes/${one.id}/shots`, {}, limit, { signal }), [one.id, limit, one.shots, head.value]);
  const [selected, setSelected] = useState(new Set());
  const [hidden, setHidden] = useState(new Set()); // about to be deleted or moved
  useEffect(() => setSelected(new Set()), [one.id]);
  const change = (ids, text, act) => {
    setSelected(new Set());
    setHidden((now) => new Set([...now, ...ids]));
    const back = () => setHidden((now) => new Set([...now].filter((id) => !ids.includes(id))));
    const all = async () => {
      for (const id of ids) await act(id);
      onChanged();
    };
    undoable(text, all, back);
  };
  const removeSelected = () => {
    const ids = [...selected];
    if (!ids.length) return false;
    change(ids, t.classDetail.removedShots(ids.length), (id) => remove(`/classes/${one.id}/shots/${id}`));
    return true;
  };
  const move = (other) => {
    const ids = [...selected];
    let target = other.id;
    change(ids, t.classDetail.moved(ids.length, other.name), async (id) => {
      const outcome = await post(`/classes/${one.id}/shots/${id}/move`, target === null ? { to_new: other.name } : { to: target });
      target = outcome.class.id;
    });
  };
  useShortcuts({ Delete: removeSelected, Backspace: removeSelected });
  const toggle = (id) => setSelected((now) => (now.has(id) ? new Set([...now].filter((other) => other !== id)) : new Set([...now, id])));
  if (error && !data) return html`<${Failure} error=${error} retry=${reload} />`;
  const shots = (data?.items ?? []).filter((shot) => !hidden.has(shot.id));
  const harmful = shots.filter((shot) => shot.harmful).length;
  return html`<section class="stack" aria-label=${t.classDetail.shots}>
    <div class="row spread"><h2>${t.classDetail.shots}</h2>${may("teach") && !one.guarded && html`<${AddShots} one=${one} onAdded=${onChanged} />`}</div>
    ${harmful > 0 && html`<p class="note warn"><${Icon} name="warning" />${t.classDetail.hurt(harmful)}</p>`}
    ${!data ? html`<${Loading} rows=${2} />` : html`<ul class="shots">${shots.map((shot) => html`<${Shot} key=${shot.id} shot=${shot} one=${one} selected=${selected.has(shot.id)} onToggle=${() => toggle(shot.id)} />`)}</ul>`}
    ${data?.next && html`<div><button class="button" onClick=${() => setLimit(limit + PAGE)}>${t.inbox.more}</button></div>`}
    ${selected.size > 0 && html`<div class="selection-bar" role="region" aria-label=${t.classDetail.selected(selected.size)}>
      <span>${t.classDetail.selected(selected.size)}</span>
      <${ClassCombo} label=${t.classDetail.moveTo} except=${one.id} onChoose=${move} />
      <button class="button danger" onClick=${removeSelected}><${Icon} name="trash" />${t.classDetail.removeShots}</button>
    </div>`}
  </section>`;
}

function Shot({ shot, one, selected, onToggle }) {
  const name = t.classDetail.shotAlt(one.name, shot.filename);
  const fixed = shot.kind === "guard" || !may("teach");
  const look = () => showDialog(shot.filename ?? one.name, () => html`<div class="full-image"><${ServerImage} path=${`/classes/${one.id}/shots/${shot.id}/image`} alt=${name} fit="contain" /></div>`, { wide: true });
  return html`<li class=${`shot ${selected ? "selected" : ""}`} data-shot=${shot.id}>
    <button class="shot-open" aria-label=${`${t.classDetail.look}: ${name}`} onClick=${look}><${ServerImage} path=${`/classes/${one.id}/shots/${shot.id}/thumbnail?sha256=${shot.sha256}`} alt=${name} /></button>
    ${!fixed && html`<input class="shot-pick" type="checkbox" checked=${selected} aria-label=${t.classDetail.select(name)} onChange=${onToggle} />`}
    <span class="chips">
      ${shot.kind === "guard" && html`<span class="chip">${t.classDetail.guard}</span>`}
      ${shot.harmful && html`<span class="chip bad" title=${t.classDetail.harmfulText}>${t.classDetail.harmful}</span>`}
      ${shot.outlier && html`<span class="chip warn" title=${t.marks.outlier.text}>${t.classDetail.outlier}</span>`}
      ${shot.right === false && html`<span class="chip warn">${shot.nearest && shot.nearest.class_id !== one.id ? t.classDetail.wrong(shot.nearest.label) : t.classDetail.wrongUnknown}</span>`}
    </span>
    <span class="muted small-text">${typeof shot.distance === "number" ? t.classDetail.away(distance(shot.distance)) : (shot.filename ?? "")}</span>
  </li>`;
}

function AddShots({ one, onAdded }) {
  const input = useRef(null);
  const add = async (files) => {
    const form = new FormData();
    for (const { file } of files) form.append("shots", file, file.name);
    try {
      await post(`/classes/${one.id}/shots`, form);
      say(t.classDetail.added(files.length), "good");
      onAdded();
    } catch (error) {
      complain(error);
    }
  };
  useDropAndPaste(add);
  return html`<button class="button" onClick=${() => input.current.click()}><${Icon} name="plus" />${t.classDetail.add}</button>
    <input ref=${input} type="file" hidden multiple accept="image/*" data-source="files" onChange=${(event) => add(chosen(event.target))} />`;
}
