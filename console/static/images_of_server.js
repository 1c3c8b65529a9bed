// Images of the service as blob URLs: an <img> cannot send a key. The newest are kept, the others revoked.
import { request, url } from "./api.js";

const KEPT = 400;
const held = new Map(); // address → {promise, users}

/** The blob URL of an image; call `release` with the same path when it is not shown any more. */
export function acquire(path) {
  const address = url(path);
  const found = held.get(address);
  if (found) {
    held.delete(address); // the newest last
    held.set(address, found);
    found.users += 1;
    return found.promise;
  }
  const promise = request(path)
    .then((response) => response.blob())
    .then((blob) => URL.createObjectURL(blob));
  promise.catch(() => held.delete(address));
  held.set(address, { promise, users: 1 });
  return promise;
}

export function release(path) {
  const found = held.get(url(path));
  if (found) found.users -= 1;
  if (held.size > KEPT) forget();
}

function forget() {
  for (const [address, { promise, users }] of held) {
    if (held.size <= KEPT) return;
    if (users > 0) continue;
    held.delete(address);
    promise.then(URL.revokeObjectURL).catch(() => {});
  }
}
