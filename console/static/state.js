// What all screens share: the model, the key, who we are, what the service told about itself, and its newest news.
import { computed, signal } from "./html.js";

const KEY = "protoquad.key";
const THEME = "protoquad.theme";

export const model = signal("default");
export const key = signal(stored(sessionStorage, KEY) ?? "");
export const keyWanted = signal(null); // why the service wants a key, or null
export const who = signal(null); // the answer of /whoami
export const about = signal(null); // the answer of /about
export const reachable = signal(true);
export const head = signal(null); // number of the active version
export const heard = signal({}); // how many events of each kind the model's stream has brought
export const inboxTotal = signal(null);
export const theme = signal(stored(localStorage, THEME) ?? "system");

export const limits = computed(() => about.value?.limits ?? {});

/** Changes with every event of these kinds: for screens to load again. */
export const newsOf = (...kinds) => kinds.reduce((sum, kind) => sum + (heard.value[kind] ?? 0), 0);

/** Whether the key in use has a scope; true while that is not known, and the service decides. */
export function may(scope) {
  const order = ["predict", "teach", "admin"];
  const scopes = who.value?.scopes;
  return !scopes || scopes.some((one) => order.indexOf(one) >= order.indexOf(scope));
}

export function useKey(text) {
  key.value = text;
  store(sessionStorage, KEY, text);
}

export function chooseTheme(name) {
  theme.value = name;
  store(localStorage, THEME, name === "system" ? "" : name);
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

function stored(storage, name) {
  try {
    return storage.getItem(name);
  } catch {
    return null;
  }
}

function store(storage, name, text) {
  try {
    if (text) storage.setItem(name, text);
    else storage.removeItem(name);
  } catch {
    // Without storage it lasts as long as the page.
  }
}
