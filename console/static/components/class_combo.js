// A field that names a class: known ones are suggested while one types, a new name is taken as it is.
import { get } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { t } from "../texts.js";

/** `onChoose` gets {id, name} of a known class, or {id: null, name} of a new one where `fresh` allows it. */
export function ClassCombo({ label, onChoose, fresh = true, except = null, action, focus = false }) {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const [found, setFound] = useState([]);
  const id = useRef(`combo-${Math.random().toString(36).slice(2)}`).current;
  useEffect(() => {
    const stop = new AbortController();
    const load = () => get("/classes", { search: text.trim(), limit: 8, sort: "name" }, { signal: stop.signal });
    const timer = setTimeout(() => load().then((page) => setFound(matching(page.items, text, except)), () => {}), text ? 150 : 0);
    return () => (clearTimeout(timer), stop.abort());
  }, [text]);
  const input = useRef(null);
  useEffect(() => {
    if (focus) input.current.focus();
  }, []);
  const exact = found.find((one) => one.name === text.trim());
  const options = [...found, ...(fresh && text.trim() && !exact ? [{ id: null, name: text.trim() }] : [])];
  const choose = (option) => {
    if (!option) return;
    setText("");
    setOpen(false);
    onChoose(option);
  };
  const press = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      setAt((now) => (options.length ? (now + (event.key === "ArrowDown" ? 1 : options.length - 1)) % options.length : 0));
    } else if (event.key === "Enter" && (text.trim() || open)) {
      event.preventDefault();
      choose(exact ?? options[Math.min(at, options.length - 1)]);
    } else if (event.key === "Escape" && open) {
      event.stopPropagation();
      setOpen(false);
    }
  };
  const shown = open && options.length > 0;
  return html`<div class="combo">
    <label class="field"><span>${label}</span>
      <input class="input" role="combobox" aria-expanded=${shown} aria-controls=${id} aria-autocomplete="list" autocomplete="off" maxlength="200" ref=${input}
        aria-activedescendant=${shown ? `${id}-${Math.min(at, options.length - 1)}` : null} placeholder=${fresh ? t.combo.placeholder : t.combo.search} value=${text}
        onInput=${(event) => (setText(event.target.value), setOpen(true), setAt(0))} onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} onKeyDown=${press} />
    </label>
    <ul class="combo-list" id=${id} role="listbox" aria-label=${label} hidden=${!shown}>
      ${options.map(
        (option, index) => html`<li role="option" id=${`${id}-${index}`} key=${option.id ?? "new"} aria-selected=${index === Math.min(at, options.length - 1)}
          onMouseDown=${(event) => (event.preventDefault(), choose(option))} onMouseEnter=${() => setAt(index)}>
          <span>${option.name}</span><span class="muted small-text">${option.id === null ? t.combo.fresh : (action ?? t.combo.shots(option.shots))}</span></li>`,
      )}
    </ul>
  </div>`;
}

/** An older server does not search; then the page does, in what it got. */
function matching(items, text, except) {
  const wanted = text.trim().toLowerCase();
  return items.filter((one) => one.id !== except && one.name.toLowerCase().includes(wanted)).slice(0, 8);
}
