// The camera: single shots, or live frames a few times a second. Says why where the browser forbids it.
import { html, useEffect, useRef, useState } from "../html.js";
import { useShortcuts } from "../shortcuts.js";
import { t } from "../texts.js";
import { Icon } from "./icon.js";

const FRAME_SIDE = 480; // of a live frame: what the network sees is smaller
const SECONDS_BETWEEN_FRAMES = 0.3;

async function openCamera() {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error(t.camera.insecure);
  try {
    return await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    throw new Error(error.name === "NotAllowedError" ? t.camera.forbidden : t.camera.none);
  }
}

function frame(video, longest) {
  const scale = Math.min(1, longest / Math.max(video.videoWidth, video.videoHeight));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(video.videoWidth * scale);
  canvas.height = Math.round(video.videoHeight * scale);
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.9));
}

let taken = 0;

export function Camera({ live, onShot, onClose }) {
  const video = useRef(null);
  const [error, setError] = useState(null);
  const [ready, setReady] = useState(false);
  const newest = useRef(live);
  newest.current = live;
  useEffect(() => {
    let stream = null;
    let over = false;
    openCamera().then(
      (opened) => {
        stream = opened;
        if (over) stop(stream);
        else video.current.srcObject = stream;
      },
      (problem) => setError(problem.message),
    );
    return () => {
      over = true;
      if (stream) stop(stream);
    };
  }, []);
  useEffect(() => {
    if (!ready || !live) return undefined;
    let over = false;
    const loop = async () => {
      while (!over) {
        if (!document.hidden && video.current?.videoWidth) await newest.current(await frame(video.current, FRAME_SIDE));
        await new Promise((resolve) => setTimeout(resolve, 1000 * SECONDS_BETWEEN_FRAMES));
      }
    };
    loop();
    return () => (over = true);
  }, [ready, Boolean(live)]);
  const shoot = async () => {
    if (!video.current?.videoWidth) return;
    taken += 1;
    onShot(new File([await frame(video.current, 1280)], `camera-${taken}.jpg`, { type: "image/jpeg" }));
  };
  useShortcuts({ " ": () => (ready ? shoot() : false), Escape: onClose });
  if (error) {
    return html`<div class="drop"><p class="note warn" role="alert"><${Icon} name="camera" />${error}</p>
      <button class="button" onClick=${onClose}>${t.camera.back}</button></div>`;
  }
  return html`<section class="camera" aria-label=${t.sources.camera}>
    <video ref=${video} autoplay muted playsinline onPlaying=${() => setReady(true)}></video>
    <div class="row camera-buttons">
      <button class="button primary" disabled=${!ready} onClick=${shoot}><${Icon} name="camera" />${live ? t.camera.hold : t.camera.take} <kbd>${t.camera.space}</kbd></button>
      <button class="button" onClick=${onClose}>${t.camera.stop}</button>
    </div>
  </section>`;
}

const stop = (stream) => stream.getTracks().forEach((track) => track.stop());
