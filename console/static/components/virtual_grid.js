// A grid of thousands of cards of one size: only those in view are in the document. Items arrive page by page.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";

const OVERSCAN = 3; // rows above and below the view

/** `item(index)` gives the card of an item, or null while it is not loaded; `onVisible(first, last)` says what is shown. */
export function VirtualGrid({ total, minWidth, rowHeight, item, onVisible, label }) {
  const box = useRef(null);
  const [view, setView] = useState({ columns: 1, first: 0, last: 0, row: rowHeight });
  useLayoutEffect(() => {
    const measure = () => {
      const size = parseFloat(getComputedStyle(document.documentElement).fontSize);
      const place = box.current.getBoundingClientRect();
      const columns = Math.max(1, Math.floor((place.width + size) / ((minWidth + 1) * size)));
      const row = rowHeight * size;
      const rows = Math.ceil(total / columns);
      const firstRow = Math.max(0, Math.floor(-place.top / row) - OVERSCAN);
      const lastRow = Math.min(rows, Math.ceil((innerHeight - place.top) / row) + OVERSCAN);
      const next = { columns, row, first: firstRow * columns, last: Math.min(total, Math.max(lastRow, firstRow) * columns) };
      setView((now) => (Object.keys(next).every((name) => next[name] === now[name]) ? now : next));
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => {
      removeEventListener("scroll", measure);
      watch.disconnect();
    };
  }, [total, minWidth, rowHeight]);
  useEffect(() => onVisible?.(view.first, view.last), [view.first, view.last, total]);
  const indices = Array.from({ length: Math.max(0, view.last - view.first) }, (_, offset) => view.first + offset);
  const height = Math.ceil(total / view.columns) * view.row;
  const top = (view.first / view.columns) * view.row;
  return html`<div ref=${box} class="virtual" style=${{ height: `${height}px` }}>
    <ul class="virtual-rows" aria-label=${label} style=${{ transform: `translateY(${top}px)`, gridTemplateColumns: `repeat(${view.columns}, minmax(0, 1fr))`, gridAutoRows: `${view.row}px` }}>
      ${indices.map((index) => html`<li key=${index} aria-setsize=${total} aria-posinset=${index + 1}>${item(index) ?? html`<span class="skeleton card-skeleton"></span>`}</li>`)}
    </ul>
  </div>`;
}
