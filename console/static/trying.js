// Images that were tried and their answers. Kept while the page is open; the images themselves stay in the browser.
import { idempotencyKey, post, Problem } from "./api.js";
import { signal } from "./html.js";
import { forget, inspect } from "./image_checks.js";

const MOST = 40; // tried images that are kept
const AT_ONCE = 2;

export const tried = signal([]); // {id, file, name, thumbnail, address, answer, other, error, taught}, newest first
export const selected = signal(null);
export const versionBeside = signal(null); // the number of a second version to ask
let queue = Promise.resolve();

function change(id, changes) {
  tried.value = tried.value.map((one) => (one.id === id ? { ...one, ...changes } : one));
}

export const current = () => tried.value.find((one) => one.id === selected.value) ?? tried.value[0] ?? null;

/** Asks about every file; the first is selected. */
export async function tryFiles(files) {
  const entries = [];
  for (const file of files) {
    const image = await inspect(file);
    entries.push({ ...image, address: image.thumbnail ? URL.createObjectURL(file) : null, answer: null, other: null, error: null, taught: null });
  }
  tried.value = [...entries, ...tried.value];
  selected.value = entries[0]?.id ?? selected.value;
  dropOld();
  const waiting = [...entries];
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await answer(next);
  };
  queue = queue.then(() => Promise.all(Array.from({ length: AT_ONCE }, work)));
  await queue;
}

function dropOld() {
  for (const old of tried.value.slice(MOST)) {
    forget(old);
    if (old.address) URL.revokeObjectURL(old.address);
  }
  tried.value = tried.value.slice(0, MOST);
}

export async function predict(file, query = {}) {
  const form = new FormData();
  form.append("images", file, file.name ?? "frame.jpg");
  const body = await post("/predict", form, { query: { explain: true, ...query } });
  return { ...body.predictions[0], version: body.version };
}

async function answer(entry) {
  try {
    const beside = versionBeside.peek();
    const [now, other] = await Promise.all([predict(entry.file), beside === null ? null : predict(entry.file, { version: beside })]);
    change(entry.id, { answer: now, other, error: null });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    change(entry.id, { answer: null, other: null, error: error.images[0]?.reason ?? error.message });
  }
}

/** Asks again: the model or the version to compare with has changed. */
export const askAgain = (entry) => answer(entry);

/** Makes the image a shot of a class, known ({id}) or new ({id: null, name}). */
export async function teachAs(entry, { id, name }) {
  const form = new FormData();
  if (id === null) form.set("name", name);
  form.append("shots", entry.file, entry.name);
  const headers = { "Idempotency-Key": idempotencyKey() };
  const outcome = await post(id === null ? "/classes" : `/classes/${id}/shots`, form, { headers });
  change(entry.id, { taught: outcome.class });
  const captured = entry.answer?.sample_id; // it needs no name any more
  if (captured) post("/inbox/resolve", { samples: [captured], dismiss: true }).catch(() => {});
  await answer(entry);
  return outcome;
}

export function clear() {
  for (const one of tried.value) {
    forget(one);
    if (one.address) URL.revokeObjectURL(one.address);
  }
  tried.value = [];
  selected.value = null;
}
