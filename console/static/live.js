// The model's news, as they happen: one stream for the whole page. An older server has none; then screens load when opened.
import { follow, get, Problem } from "./api.js";
import { effect } from "./html.js";
import { about, head, heard, inboxTotal, key, keyWanted, model, who } from "./state.js";

let stop = new AbortController();

/** Follows whichever model is in use, with the key in use. */
export function startLive() {
  effect(() => {
    const of = model.value;
    const withKey = key.value;
    stop.abort();
    stop = new AbortController();
    head.value = null;
    introduce(of, withKey, stop.signal);
  });
}

async function introduce(of, withKey, signal) {
  try {
    who.value = await optional(get("/whoami", {}, { signal }));
    if (signal.aborted) return;
    keyWanted.value = null;
    await Promise.all([loadHead(of, signal), loadAbout(signal), loadInbox(signal)]);
    // What happened before the stream was open, or while it was lost, is not told again.
    const onOpen = () => Promise.all([loadHead(of, signal), loadInbox(signal)]).catch(() => {});
    await follow("/events", (event) => hear(event, of, signal), { signal, onOpen, endless: true });
  } catch (error) {
    if (signal.aborted || !(error instanceof Problem)) return;
    if (error.status === 0 || error.status === 503) setTimeout(() => !signal.aborted && introduce(of, withKey, signal), 2000);
  }
}

function hear(event, of, signal) {
  heard.value = { ...heard.value, [event.event]: (heard.value[event.event] ?? 0) + 1 };
  if (event.event === "inbox") loadInbox(signal);
  else if (event.event !== "session") loadHead(of, signal).catch(() => {});
}

async function loadHead(of, signal) {
  const found = await get(`/models/${encodeURIComponent(of)}`, {}, { signal });
  if (!signal.aborted) head.value = found.version;
}

export async function loadAbout(signal) {
  about.value = await optional(get("/about", {}, { signal }));
}

async function loadInbox(signal) {
  const page = await optional(get("/inbox", { limit: 1 }, { signal }));
  if (!signal.aborted) inboxTotal.value = page?.total ?? null;
}

/** Null where the server lacks the route, or the key its scope. */
async function optional(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof Problem && (error.missingRoute || error.status === 403)) return null;
    throw error;
  }
}
