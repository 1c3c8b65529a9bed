// The console's own line icons, on a grid of 24.
import { html } from "../html.js";

const PATHS = {
  teach: "M12 5v14M5 12h14",
  try: "M4 8V6a2 2 0 0 1 2-2h2M16 4h2a2 2 0 0 1 2 2v2M20 16v2a2 2 0 0 1-2 2h-2M8 20H6a2 2 0 0 1-2-2v-2M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6",
  classes: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  inbox: "M4 13l3-8h10l3 8v6H4zM4 13h5l1 3h4l1-3h5",
  versions: "M6 3v18M6 8h5a4 4 0 0 1 4 4v3M6 3a0 0 0 0 0 0 0M15 15a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5",
  map: "M5 6.5a1.5 1.5 0 1 0 3 0 1.5 1.5 0 0 0-3 0M15 5a2.5 2.5 0 1 0 5 0 2.5 2.5 0 0 0-5 0M9 15a3.5 3.5 0 1 0 7 0 3.5 3.5 0 0 0-7 0M4 19a1 1 0 1 0 2 0 1 1 0 0 0-2 0M19 18.5a1 1 0 1 0 2 0 1 1 0 0 0-2 0",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M14 7a2 2 0 1 0 4 0 2 2 0 0 0-4 0M6 17a2 2 0 1 0 4 0 2 2 0 0 0-4 0",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5",
  auto: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 3v18M12 7h6M12 11h8M12 15h7",
  help: "M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 2V14M12 17.5v.5",
  code: "M8 7l-5 5 5 5M16 7l5 5-5 5",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9h.01",
  folder: "M3 6h6l2 2h10v11H3z",
  camera: "M4 8h3l2-3h6l2 3h3v11H4zM12 10a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7",
  paste: "M9 4h6v3H9zM9 5H6v15h12V5h-3",
  close: "M6 6l12 12M18 6L6 18",
  check: "M5 12.5l4.5 4.5L19 7.5",
  warning: "M12 4L2.5 20h19zM12 10v4M12 17v.5",
  search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12M15.5 15.5L20 20",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  move: "M4 12h15M14 7l5 5-5 5",
  edit: "M4 20l1-4L16 5l3 3L8 19z",
  merge: "M6 4v4a4 4 0 0 0 4 4h8M6 20v-4a4 4 0 0 1 4-4M15 9l3 3-3 3",
  back: "M19 12H5M10 7l-5 5 5 5",
  undo: "M8 7L4 11l4 4M4 11h10a5 5 0 0 1 0 10h-3",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  key: "M14 4a6 6 0 0 0-5.7 7.8L3 17v4h4v-2h2v-2h2l1.2-1.3A6 6 0 1 0 14 4M16 8h.01",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  spark: "M12 3l1.8 5.2L19 10l-5.2 1.8L12 17l-1.8-5.2L5 10l5.2-1.8zM19 16l.8 2.2L22 19l-2.2.8L19 22l-.8-2.2L16 19l2.2-.8z",
  compare: "M12 4v16M5 8h4v8H5zM15 8h4v8h-4z",
  question: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M9.5 9.5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M12 16.5v.2",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
};

export function Icon({ name, size = 20 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} />
  </svg>`;
}
