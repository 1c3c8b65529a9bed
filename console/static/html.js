// What every screen is written with: htm templates for Preact, hooks and signals, from one place.
import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { Fragment, render } from "./vendor/preact.js";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export { batch, computed, effect, signal } from "./vendor/signals.js";
