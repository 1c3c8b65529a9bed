// Names against typos: which known name somebody may have meant.
import { get } from "./api.js";

const SHORT = 3;

/** How many letters must be changed, left out, added or swapped with their neighbour. */
export function editDistance(one, other) {
  const rows = Array.from({ length: one.length + 1 }, (_, row) => [row]);
  for (let column = 0; column <= other.length; column += 1) rows[0][column] = column;
  for (let row = 1; row <= one.length; row += 1) {
    for (let column = 1; column <= other.length; column += 1) {
      const same = one[row - 1] === other[column - 1] ? 0 : 1;
      let best = Math.min(rows[row - 1][column] + 1, rows[row][column - 1] + 1, rows[row - 1][column - 1] + same);
      const swapped = row > 1 && column > 1 && one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      if (swapped) best = Math.min(best, rows[row - 2][column - 2] + 1);
      rows[row][column] = best;
    }
  }
  return rows[one.length][other.length];
}

const plain = (name) => name.trim().toLowerCase().replace(/[\s_-]+/g, " ");

/** The class that has this name, or one so similar that it may be meant: {same, similar}. */
export function closest(name, classes) {
  const wanted = plain(name);
  const same = classes.find((one) => one.name === name.trim()) ?? null;
  if (same || !wanted) return { same, similar: null };
  let similar = null;
  let least = wanted.length < 4 ? 0 : Math.max(1, Math.floor(wanted.length / 5));
  for (const one of classes) {
    const apart = editDistance(wanted, plain(one.name));
    if (apart <= least) {
      least = apart - 0.5; // the first of the nearest
      similar = one;
    }
  }
  return { same: null, similar };
}

/** Classes whose names begin or end like this one: those that a typo in the rest could hide. */
export async function candidates(name, signal) {
  const text = name.trim();
  if (!text) return [];
  const parts = text.length <= SHORT ? [text] : [text.slice(0, SHORT), text.slice(-SHORT)];
  const pages = await Promise.all(parts.map((search) => get("/classes", { search, limit: 100 }, { signal })));
  const all = new Map(pages.flatMap((page) => page.items).map((one) => [one.id, one]));
  return [...all.values()];
}
