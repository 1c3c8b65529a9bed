// Map: prototypes and shots in two dimensions. Hover or arrow keys show the image; the axes stay from version to version.
import { get } from "../api.js";
import { Icon } from "../components/icon.js";
import { ServerImage } from "../components/server_image.js";
import { Empty, Failure, Loading } from "../components/states.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { useLoaded } from "../loading.js";
import { go, route, setParameter } from "../router.js";
import { head } from "../state.js";
import { t } from "../texts.js";

const SHOTS = 500;
const LETTER = 8.2; // pixels that a letter of a label takes, about

export default function Map_() {
  const versions = useLoaded((signal) => get("/versions", { limit: 100 }, { signal }), [head.value]);
  const number = Number(route.value.query.get("version") ?? head.value ?? NaN);
  const { data, error, reload } = useLoaded((signal) => (Number.isNaN(number) ? null : get(`/versions/${number}/map`, { limit: SHOTS }, { signal })), [number]);
  const usable = (versions.data?.items ?? []).filter((one) => one.kept && one.classes > 0);
  return html`<header class="screen-head"><div><h1>${t.map.title}</h1><p>${t.map.text}</p></div>
      ${usable.length > 1 && html`<label class="row"><span class="label-text">${t.map.version}</span>
        <select class="select fit" value=${number} onChange=${(event) => setParameter("version", Number(event.target.value) === head.value ? "" : event.target.value)}>
          ${usable.map((one) => html`<option value=${one.number} key=${one.number}>${t.try.versionOption(one)}</option>`)}</select></label>`}</header>
    ${error ? html`<${Failure} error=${error} retry=${reload} />` : !data ? html`<${Loading} />` : data.prototypes.length === 0 ? html`<${Empty} icon="map" title=${t.map.emptyTitle}><p>${t.map.emptyText}</p></${Empty}>` : html`<${Plot} data=${data} />
      <p class="muted small-text">${explained(data)} ${t.map.hint}</p>`}`;
}

function explained({ axes }) {
  const shares = axes?.explained ?? [];
  return shares.length ? t.map.explained(shares.reduce((sum, one) => sum + one, 0)) : "";
}

/** A colour for each class: the golden angle keeps neighbours apart. */
const hue = (id) => (id * 137.508) % 360;
const colour = (id) => `oklch(0.62 0.14 ${hue(id).toFixed(1)})`;

function layout({ prototypes, shots }, [width, height]) {
  const names = new Map(prototypes.map((one) => [one.class_id, one.label]));
  const points = [
    ...prototypes.map((one) => ({ ...one, shot_id: null })),
    ...shots.map((one) => ({ ...one, label: names.get(one.class_id) ?? "" })), // on top: they may lie close to their prototype
  ];
  const [xs, ys] = [points.map((one) => one.x), points.map((one) => one.y)];
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = 0.86 * Math.min(width / (right - left || 1), height / (high - low || 1));
  const place = (one) => ({ ...one, px: width / 2 + scale * (one.x - (left + right) / 2), py: height / 2 - scale * (one.y - (low + high) / 2) });
  return points.map(place);
}

function Plot({ data }) {
  const [[boxWidth, boxHeight], setBox] = useState([1000, 640]);
  const points = useMemo(() => layout(data, [boxWidth, boxHeight]), [data, boxWidth, boxHeight]);
  const [view, setView] = useState({ x: 0, y: 0, zoom: 1 });
  const [here, setHere] = useState(null);
  const box = useRef(null);
  const zoom = (factor) => setView((now) => ({ ...now, zoom: Math.min(20, Math.max(1, now.zoom * factor)) }));
  useEffect(() => {
    const wheel = (event) => {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 300));
    };
    const element = box.current;
    const watch = new ResizeObserver(() => setBox([element.clientWidth, element.clientHeight]));
    watch.observe(element);
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      watch.disconnect();
      element.removeEventListener("wheel", wheel);
    };
  }, []);
  const press = (event) => {
    const directions = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (directions[event.key]) setHere(next(points, here, directions[event.key]));
    else if (event.key === "+" || event.key === "=") zoom(1.4);
    else if (event.key === "-") zoom(1 / 1.4);
    else if (event.key === "Enter" && here) go(`classes/${here.class_id}`);
    else return;
    event.preventDefault();
  };
  const drag = (event) => {
    if (!(event.buttons & 1)) return;
    setView((now) => ({ ...now, x: now.x - event.movementX / now.zoom, y: now.y - event.movementY / now.zoom }));
  };
  const [width, height] = [boxWidth / view.zoom, boxHeight / view.zoom];
  const left = (boxWidth - width) / 2 + view.x;
  const top = (boxHeight - height) / 2 + view.y;
  const size = 1 / view.zoom ** 0.8;
  const labels = useMemo(() => labelled(points, size), [points, size]);
  return html`<div class="map-box" ref=${box}>
    <svg viewBox=${`${left} ${top} ${width} ${height}`} role="application" tabindex="0" aria-label=${`${t.map.label(data.prototypes.length, data.shots.length)}. ${t.map.hint}`}
      onKeyDown=${press} onPointerMove=${drag} onMouseLeave=${() => setHere(null)} onFocus=${() => setHere(here ?? points[0])} onBlur=${() => setHere(null)}>
      ${points.map((one) => html`<${Point} key=${`${one.class_id} ${one.shot_id}`} one=${one} size=${size} here=${here === one} onHere=${setHere} />`)}
      ${labels.map((one) => html`<text key=${one.class_id} class="map-label" x=${one.px + 13 * size} y=${one.py + 5 * size} font-size=${15 * size}>${one.label}</text>`)}
    </svg>
    <div class="map-tools">
      <button class="icon-button" aria-label=${t.map.zoomIn} onClick=${() => zoom(1.4)}><${Icon} name="plus" /></button>
      <button class="icon-button" aria-label=${t.map.zoomOut} onClick=${() => zoom(1 / 1.4)}><${Icon} name="minus" /></button>
      <button class="icon-button" aria-label=${t.map.whole} onClick=${() => setView({ x: 0, y: 0, zoom: 1 })}><${Icon} name="try" /></button>
    </div>
    <p class="hidden-text" aria-live="polite">${here ? caption(here) : ""}</p>
    ${here && html`<${Tip} one=${here} left=${(here.px - left) / width} top=${(here.py - top) / height} />`}
  </div>`;
}

/** The prototypes whose names fit beside them without covering another name. */
function labelled(points, size) {
  const placed = [];
  for (const one of points) {
    if (one.shot_id !== null) continue;
    const box = { left: one.px, right: one.px + (13 + LETTER * one.label.length) * size, top: one.py - 10 * size, bottom: one.py + 10 * size, one };
    const covers = placed.some((other) => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom);
    if (!covers) placed.push(box);
  }
  return placed.map(({ one }) => one);
}

const caption = (one) => (one.shot_id === null ? t.map.prototype(one.label) : t.map.shot(one.label));

function Point({ one, size, here, onHere }) {
  const shape = { class: `map-point ${here ? "here" : ""}`, fill: colour(one.class_id), stroke: colour(one.class_id), onMouseEnter: () => onHere(one), onClick: () => go(`classes/${one.class_id}`) };
  if (one.shot_id !== null) return html`<circle ...${shape} cx=${one.px} cy=${one.py} r=${4.5 * size} fill-opacity="0.7" stroke="none" />`;
  const half = 9 * size;
  return html`<rect ...${shape} fill-opacity="0.22" stroke-width=${2 * size} x=${one.px - half} y=${one.py - half} width=${2 * half} height=${2 * half} rx=${2.5 * size} />`;
}

function Tip({ one, left, top }) {
  const place = { left: `clamp(0px, calc(${(100 * left).toFixed(2)}% + 14px), calc(100% - 9rem))`, top: `clamp(0px, calc(${(100 * top).toFixed(2)}% + 14px), calc(100% - 11rem))` };
  return html`<div class="map-tip" style=${place} aria-hidden="true">
    ${one.shot_id !== null && html`<${ServerImage} path=${`/classes/${one.class_id}/shots/${one.shot_id}/thumbnail`} alt="" />`}
    <b class="small-text">${caption(one)}</b></div>`;
}

/** The nearest point in a direction. */
function next(points, from, [dx, dy]) {
  if (!from) return points[0];
  let best = from;
  let least = Infinity;
  for (const one of points) {
    const along = (one.px - from.px) * dx + (one.py - from.py) * dy;
    if (along <= 0.01) continue;
    const across = Math.abs((one.px - from.px) * dy) + Math.abs((one.py - from.py) * dx);
    if (along + 2 * across < least) {
      least = along + 2 * across;
      best = one;
    }
  }
  return best;
}
