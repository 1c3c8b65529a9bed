// The ways to give images: a place to drop them, files, folders, the clipboard, the camera.
import { chosen, useDropAndPaste } from "../file_sources.js";
import { html, useRef, useState } from "../html.js";
import { t } from "../texts.js";
import { Camera } from "./camera.js";
import { Icon } from "./icon.js";

/** `onFiles` gets [{file, folder}]. `live`, if given, gets camera frames as they come. */
export function Sources({ title, text, onFiles, folders = false, live = null, compact = false, children }) {
  const [camera, setCamera] = useState(false);
  const dragging = useDropAndPaste(onFiles);
  const files = useRef(null);
  const folder = useRef(null);
  const take = (event) => onFiles(chosen(event.target));
  if (camera) {
    return html`<${Camera} live=${live} onShot=${(file) => onFiles([{ file, folder: "" }])} onClose=${() => setCamera(false)} />`;
  }
  return html`<section class=${`drop ${dragging ? "dragging" : ""} ${compact ? "compact" : ""}`} aria-label=${title}>
    ${!compact && html`<span class="empty-icon"><${Icon} name="image" size=${28} /></span>`}
    <div><h2>${dragging ? t.sources.release : title}</h2>${text && html`<p class="muted">${text}</p>`}</div>
    <div class="row drop-buttons">
      <button class="button" onClick=${() => files.current.click()}><${Icon} name="image" />${t.sources.files}</button>
      ${folders && html`<button class="button" onClick=${() => folder.current.click()}><${Icon} name="folder" />${t.sources.folder}</button>`}
      <button class="button" onClick=${() => setCamera(true)}><${Icon} name="camera" />${t.sources.camera}</button>
      <span class="muted small-text paste-hint"><kbd>Ctrl</kbd> <kbd>V</kbd> ${t.sources.paste}</span>
    </div>
    <input ref=${files} type="file" hidden multiple accept="image/*" data-source="files" onChange=${take} />
    ${folders && html`<input ref=${folder} type="file" hidden webkitdirectory data-source="folder" onChange=${take} />`}
    ${children}
  </section>`;
}
