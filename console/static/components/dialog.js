// Dialogs: the browser's own <dialog>, which keeps the focus inside and gives it back, closed with Escape.
import { html, signal, useEffect, useRef } from "../html.js";
import { t } from "../texts.js";
import { Icon } from "./icon.js";

const open = signal(null);

/** Shows a dialog; `content` is a component that gets `close`. */
export function showDialog(title, content, { wide = false } = {}) {
  open.value = { title, content, wide };
}

/** Asks before something that cannot be undone; resolves to whether it was confirmed. */
export function confirm({ title, text, points = [], action, danger = false }) {
  return new Promise((resolve) => {
    const Content = ({ close }) => html`
      ${text && html`<p>${text}</p>`}
      ${points.length > 0 && html`<ul class="plain-list">${points.map((point) => html`<li>${point}</li>`)}</ul>`}
      <div class="dialog-actions">
        <button class="button" onClick=${close}>${t.cancel}</button>
        <button class=${`button ${danger ? "danger" : "primary"}`} autofocus onClick=${() => (resolve(true), close())}>${action}</button>
      </div>`;
    open.value = { title, content: Content, onClose: () => resolve(false) };
  });
}

export function Dialogs() {
  const shown = open.value;
  const element = useRef(null);
  useEffect(() => {
    if (shown && element.current && !element.current.open) element.current.showModal();
  }, [shown]);
  if (!shown) return null;
  const close = () => element.current?.close();
  const closed = () => {
    if (open.peek() === shown) open.value = null;
    shown.onClose?.();
  };
  const outside = (event) => event.target === element.current && close();
  const Content = shown.content;
  return html`<dialog ref=${element} class=${shown.wide ? "dialog wide" : "dialog"} aria-labelledby="dialog-title" onClose=${closed} onClick=${outside}>
    <div class="dialog-body">
      <header class="dialog-head">
        <h2 id="dialog-title">${shown.title}</h2>
        <button class="icon-button" aria-label=${t.close} onClick=${close}><${Icon} name="close" /></button>
      </header>
      <${Content} close=${close} />
    </div>
  </dialog>`;
}
