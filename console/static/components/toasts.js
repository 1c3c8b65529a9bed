// Short messages at the edge of the page, and changes that wait a moment so that they can be undone.
import { html, signal } from "../html.js";
import { t } from "../texts.js";
import { Icon } from "./icon.js";

const SECONDS = 6;
const shown = signal([]);
let newest = 0;

function add(toast) {
  newest += 1;
  const entry = { id: newest, ...toast };
  shown.value = [...shown.value.slice(-3), entry];
  return entry;
}

function drop(id) {
  shown.value = shown.value.filter((one) => one.id !== id);
}

export function say(text, kind = "plain") {
  const { id } = add({ text, kind });
  setTimeout(() => drop(id), SECONDS * 1000);
}

export function complain(error) {
  if (error?.name !== "AbortError") say(error.message, "bad");
}

/**
 * Does something after a few seconds, unless it is undone until then. `undo` puts the screen back.
 * When the page is left, it is done at once.
 */
export function undoable(text, action, undo) {
  const entry = add({ text, kind: "plain", pending: true });
  const finish = async () => {
    if (!pending.delete(entry.id)) return;
    clearTimeout(timer);
    shown.value = shown.value.map((one) => (one.id === entry.id ? { ...one, pending: false } : one));
    try {
      await action();
    } catch (error) {
      undo();
      complain(error);
    }
    drop(entry.id);
  };
  const timer = setTimeout(finish, SECONDS * 1000);
  pending.set(entry.id, {
    finish,
    cancel: () => {
      clearTimeout(timer);
      pending.delete(entry.id);
      drop(entry.id);
      undo();
    },
  });
}

const pending = new Map();

export function undoNewest() {
  const all = [...pending.values()];
  all.at(-1)?.cancel();
  return all.length > 0;
}

/** Does at once what still waits. */
export const finishPending = () => Promise.all([...pending.values()].map((one) => one.finish()));
addEventListener("pagehide", finishPending);

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.value.map(
      (one) => html`<div class=${`toast ${one.kind}`} key=${one.id}>
        <span>${one.text}</span>
        ${one.pending
          ? html`<button class="button small" onClick=${() => pending.get(one.id)?.cancel()}>${t.undo} <kbd>Z</kbd></button>`
          : html`<button class="icon-button" aria-label=${t.close} onClick=${() => drop(one.id)}><${Icon} name="close" size=${16} /></button>`}
      </div>`,
    )}
  </div>`;
}
