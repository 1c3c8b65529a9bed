// What is about to be taught: groups of images, each to become a class. Kept while the page is open.
import { get, idempotencyKey, post, Problem } from "./api.js";
import { signal } from "./html.js";
import { forget, inspect, markDuplicates } from "./image_checks.js";
import { limits } from "./state.js";
import { t } from "./texts.js";

const AT_ONCE = 4; // images inspected in parallel
const MAX_SHOTS = 100;
const MAX_BYTES = 30_000_000; // of a request, unless the service names its limit

export const groups = signal([]); // {id, name, images, state: draft|sending|failed|taught, error, key, outcome, same, similar}
let newest = 0;

export function change(id, changes) {
  groups.value = groups.value.map((one) => (one.id === id ? { ...one, ...(changes instanceof Function ? changes(one) : changes) } : one));
}

function newGroup(name) {
  newest += 1;
  const group = { id: newest, name, images: [], state: "draft", error: null, key: idempotencyKey(), outcome: null, same: null, similar: null };
  groups.value = [...groups.value, group];
  return group.id;
}

/** The group for loose images: the one without a name, or the only one that is open. */
function looseGroup() {
  const open = groups.value.filter((one) => one.state === "draft" || one.state === "failed");
  return (open.find((one) => !one.name) ?? (open.length === 1 ? open[0] : null))?.id ?? newGroup("");
}

/** Takes [{file, folder}]: a group for each folder, one for the loose files. */
export async function add(files) {
  const places = new Map();
  for (const { folder } of files) {
    if (places.has(folder)) continue;
    const open = groups.value.find((one) => one.state !== "taught" && folder && one.name === folder);
    places.set(folder, folder ? (open?.id ?? newGroup(folder)) : looseGroup());
  }
  const waiting = files.map(({ file, folder }) => ({ file, group: places.get(folder), slot: Symbol(file.name) }));
  for (const { file, group, slot } of waiting) {
    change(group, (one) => ({ images: [...one.images, { id: slot, name: file.name, marks: [], pending: true, usable: false }] }));
  }
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await fill(next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

async function fill({ file, group, slot }) {
  const image = await inspect(file);
  change(group, (one) => ({
    images: markDuplicates(one.images.map((waiting) => (waiting.id === slot ? image : waiting))),
    key: idempotencyKey(),
  }));
}

export function rename(id, name) {
  change(id, { name, key: idempotencyKey(), same: null, similar: null, error: null });
}

export function removeImage(id, image) {
  forget(image);
  change(id, (one) => ({ images: markDuplicates(one.images.filter((other) => other.id !== image.id)), key: idempotencyKey() }));
}

export function removeGroup(id) {
  const group = groups.value.find((one) => one.id === id);
  group?.images.forEach(forget);
  groups.value = groups.value.filter((one) => one.id !== id);
}

/** Removes every image that was refused or cannot be read. */
export function removeBad(id) {
  const group = groups.value.find((one) => one.id === id);
  group.images.filter((image) => !image.usable || image.refused).forEach((image) => removeImage(id, image));
  change(id, { state: "draft", error: null });
}

export const usable = (group) => group.images.filter((image) => image.usable && !image.refused);
export const ready = (group) => (group.state === "draft" || group.state === "failed") && group.name.trim() && usable(group).length > 0 && !group.images.some((image) => image.pending);

/** Teaches every group that is ready, one after another. */
export async function teachAll() {
  for (const group of groups.value.filter(ready)) await teach(group);
}

async function teach(group) {
  change(group.id, { state: "sending", error: null });
  const images = usable(group);
  try {
    const existing = group.same?.id ?? null;
    const outcome = await sendAll(group, images, existing);
    const far = new Map(outcome.outliers.map((one) => [one.index, one]));
    change(group.id, (one) => ({
      state: "taught",
      outcome,
      added: existing !== null,
      images: one.images.map((image) => {
        const found = far.get(images.findIndex((sent) => sent.id === image.id));
        return found ? { ...image, marks: [...image.marks, "outlier"] } : image;
      }),
    }));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const refused = new Map(error.images.map((one) => [images[one.index]?.id, one.reason]));
    change(group.id, (one) => ({
      state: "failed",
      error: error.kind === "name-taken" ? t.teach.nameTaken : error.message,
      images: one.images.map((image) => (refused.has(image.id) ? { ...image, refused: refused.get(image.id) } : image)),
    }));
  }
}

/** In as many requests as the service's limits need; the first makes the class. */
async function sendAll(group, images, existing) {
  const outliers = [];
  let outcome = null;
  let classId = existing;
  let sent = 0;
  for (const some of batches(images)) {
    const form = new FormData();
    if (classId === null) form.set("name", group.name.trim());
    for (const { file, name } of some) form.append("shots", file, name);
    const path = classId === null ? "/classes" : `/classes/${classId}/shots`;
    outcome = await post(path, form, { headers: { "Idempotency-Key": `${group.key}-${sent}` } });
    outliers.push(...outcome.outliers.map((one) => ({ ...one, index: one.index + sent })));
    classId = outcome.class.id;
    sent += some.length;
  }
  return { ...outcome, outliers };
}

function batches(images) {
  const most = limits.value.max_shots ?? MAX_SHOTS;
  const bytes = Math.min(limits.value.max_request_bytes ?? MAX_BYTES, MAX_BYTES) * 0.95;
  const all = [[]];
  let size = 0;
  for (const image of images) {
    if (all.at(-1).length >= most || (size + image.file.size > bytes && all.at(-1).length)) {
      all.push([]);
      size = 0;
    }
    all.at(-1).push(image);
    size += image.file.size;
  }
  return all;
}

/** The sample images that come with the console, as groups; those that are taught already are left out. */
export async function addSamples() {
  const samples = (await get("/samples")).filter((one) => one.shots.length);
  const known = await Promise.all(samples.map((one) => get("/classes", { search: one.name, limit: 100 })));
  const wanted = samples.filter((one, index) => !known[index].items.some((found) => found.name === one.name));
  const files = await Promise.all(
    wanted.flatMap(({ name, shots }) => shots.map(async (address) => ({ file: await sampleFile(address), folder: name }))),
  );
  await add(files);
  return wanted.length;
}

export async function sampleFile(address) {
  const response = await fetch(address);
  return new File([await response.blob()], address.split("/").at(-1), { type: "image/jpeg" });
}
