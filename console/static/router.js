// The screen is in the hash: #/classes/12?model=birds. No request is made to move between screens.
import { effect, signal } from "./html.js";
import { model } from "./state.js";

export const route = signal(parse(location.hash));

addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

effect(() => {
  const wanted = route.value.query.get("model") || "default";
  if (wanted !== model.peek()) model.value = wanted;
});

function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [screen, ...rest] = path.split("/").map(decodeURIComponent);
  return { screen: screen || "", rest, query: new URLSearchParams(query ?? "") };
}

/** The address of a screen, for the model in use. */
export function to(path, parameters = {}) {
  const query = new URLSearchParams();
  const all = { model: model.value === "default" ? "" : model.value, ...parameters };
  for (const [name, value] of Object.entries(all)) {
    if (value !== "" && value !== null && value !== undefined) query.set(name, value);
  }
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function go(path, parameters) {
  location.hash = to(path, parameters);
}

/** Changes a parameter of this screen's address without a new entry in the history. */
export function setParameter(name, value) {
  const query = new URLSearchParams(route.peek().query);
  if (value === "" || value === null || value === undefined) query.delete(name);
  else query.set(name, value);
  const path = [route.peek().screen, ...route.peek().rest].map(encodeURIComponent).join("/");
  const text = query.toString();
  history.replaceState(null, "", `#/${path}${text ? `?${text}` : ""}`);
  route.value = { ...route.peek(), query };
}
