// The HTTP API: every request of the page goes through here, with its key, its model and its problem+json.
import { key, keyWanted, model, reachable } from "./state.js";
import { t } from "./texts.js";

const WHOLE_SERVICE = /^\/(about|whoami|keys|models|samples|livez|readyz)(\/|$|\?)/;
const LARGEST_PAGE = 500;
const ATTEMPTS = 4; // of a request that is answered with "busy"

/** An answer that is an error. `detail` says what is true and what to do; `images` names the images at fault. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || t.errors.status(status));
    this.status = status;
    this.title = body.title ?? "";
    this.kind = String(body.type ?? "").replace("/problems/", "");
    this.images = body.images ?? [];
    this.requestId = body.request_id ?? null;
  }

  /** The route does not exist on this server: an older release. */
  get missingRoute() {
    return this.status === 405 || (this.status === 404 && this.title === "Not Found");
  }
}

/** The address of a route for the model in use. */
export function url(path, query = {}) {
  const prefix = model.peek() === "default" || WHOLE_SERVICE.test(path) ? "" : `/models/${encodeURIComponent(model.peek())}`;
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") parameters.set(name, value);
  }
  const text = parameters.toString();
  return prefix + path + (text ? `?${text}` : "");
}

/** A request; one that is safe to send again is, when the service says that it is only busy. */
export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const safe = !options.method || path.startsWith("/predict") || headers.has("Idempotency-Key");
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await once(path, options);
    } catch (error) {
      if (!(safe && error.status === 503 && error.retryAfter && attempt < ATTEMPTS)) throw error;
      await pause(Math.min(5000, 1000 * error.retryAfter), options.signal);
    }
  }
}

async function once(path, { query, ...options }) {
  const headers = new Headers(options.headers);
  if (key.peek()) headers.set("Authorization", `Bearer ${key.peek()}`);
  let response;
  try {
    response = await fetch(url(path, query), { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost();
    throw new Problem(0, { title: t.errors.unreachable, detail: t.errors.unreachableDetail });
  }
  reachable.value = true;
  if (!response.ok) throw await problem(response);
  return response;
}

async function problem(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // A proxy's own page, or nothing.
  }
  const found = new Problem(response.status, body);
  found.retryAfter = Number(response.headers.get("Retry-After")) || 0;
  if (found.status === 401) keyWanted.value = found.message;
  return found;
}

export async function get(path, query, options = {}) {
  return (await request(path, { query, ...options })).json();
}

/** As many items of a list as wanted, in as many pages as that takes; `next` is null when there are no more. */
export async function getItems(path, query, wanted, options = {}) {
  let page = await get(path, { ...query, limit: Math.min(wanted, LARGEST_PAGE) }, options);
  const items = [...page.items];
  while (page.next && items.length < wanted) {
    page = await get(path, { ...query, cursor: page.next, limit: Math.min(wanted - items.length, LARGEST_PAGE) }, options);
    items.push(...page.items);
  }
  return { ...page, items };
}

export async function send(method, path, body, options = {}) {
  const json = body !== undefined && !(body instanceof FormData) && !(body instanceof Blob);
  const headers = { ...options.headers, ...(json ? { "Content-Type": "application/json" } : {}) };
  const response = await request(path, { ...options, method, headers, body: json ? JSON.stringify(body) : body });
  return response.status === 204 ? null : response.json();
}

export const post = (path, body, options) => send("POST", path, body, options);
export const patch = (path, body, options) => send("PATCH", path, body, options);
export const remove = (path, options) => send("DELETE", path, undefined, options);

/** A name for a request, so that sending it again after a lost connection does nothing twice. */
export function idempotencyKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A lost connection

let asking = false;

function lost() {
  reachable.value = false;
  if (asking) return;
  asking = true;
  setTimeout(askAgain, 1000);
}

async function askAgain() {
  try {
    await fetch("/livez", { cache: "no-store" });
    asking = false;
    reachable.value = true;
  } catch {
    setTimeout(askAgain, 2000);
  }
}

// Server-sent events, over fetch: EventSource cannot send a key

/**
 * Reads a stream until it is over, and comes back with Last-Event-ID when the connection is lost.
 * `onEvent` gets {id, event, data} and returns true when nothing more is wanted.
 */
export async function follow(path, onEvent, { signal, endless = false, onOpen = () => {} } = {}) {
  let last = null;
  let failures = 0;
  while (!signal?.aborted) {
    try {
      const headers = last === null ? {} : { "Last-Event-ID": last };
      const response = await request(path, { headers, signal, cache: "no-store" });
      failures = 0;
      onOpen();
      for await (const event of eventsOf(response.body)) {
        if (event.id) last = event.id;
        if (onEvent(event) === true) return;
      }
      if (!endless) return;
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof Problem && error.status >= 400 && error.status < 500) throw error;
      failures += 1;
    }
    await pause(Math.min(8000, 500 * 2 ** failures), signal);
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      buffer += value.replaceAll("\r\n", "\n");
      for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
        const event = parsed(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const event = { id: "", event: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value] = /^(id|event|data): ?(.*)$/.exec(line) ?? [];
    if (name) event[name] = name === "data" && event.data ? `${event.data}\n${value}` : value;
  }
  if (!event.data) return null;
  try {
    return { ...event, data: JSON.parse(event.data) };
  } catch {
    return null;
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
