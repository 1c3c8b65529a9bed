// Keys of the page: single letters, and `g` followed by a letter to go somewhere. Not while somebody types.
import { useLayoutEffect } from "./html.js";

const handlers = []; // the newest first: a screen's keys come before those of the page
let prefix = "";
let forgetPrefix = 0;

/** Keys as {"?": function, "g t": function}, for as long as the component is shown. */
export function useShortcuts(keys) {
  useLayoutEffect(() => { // at once: a key may be pressed before the next paint
    handlers.unshift(keys);
    return () => {
      handlers.splice(handlers.indexOf(keys), 1);
    };
  });
}

function typing(target) {
  if (target.closest?.("textarea, select, [contenteditable]")) return true;
  const input = target.closest?.("input");
  return Boolean(input) && !["checkbox", "radio", "button", "file", "range"].includes(input.type);
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const name = prefix + pressed;
  clearTimeout(forgetPrefix);
  prefix = "";
  const found = handlers.find((keys) => keys[name] && keys[name](event) !== false);
  if (found) {
    event.preventDefault();
  } else if (pressed === "g") {
    prefix = "g ";
    forgetPrefix = setTimeout(() => (prefix = ""), 1200);
  }
});
