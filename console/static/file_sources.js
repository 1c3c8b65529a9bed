// Where images come from: dropped files and folders, chosen ones, the clipboard. Each with the folder that it was in.
import { useEffect, useState } from "./html.js";

const IMAGE_NAME = /\.(jpe?g|png|webp|bmp|gif|tiff?)$/i;

const isImage = (file) => file.type.startsWith("image/") || IMAGE_NAME.test(file.name);

/** The files of a drop: [{file, folder}]; `folder` is the name of the folder that the file is in, "" for a loose one. */
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, folder: "" }));
  const found = await Promise.all(entries.map((entry) => within(entry, "")));
  return found.flat();
}

async function within(entry, folder) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return folder && (!isImage(file) || file.name.startsWith(".")) ? [] : [{ file, folder }];
  }
  const reader = entry.createReader();
  const inside = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)); // at most 100 at a time
    if (!some.length) break;
    inside.push(...some);
  }
  const found = await Promise.all(inside.map((one) => within(one, entry.name)));
  return found.flat();
}

/** The files of an <input>, also of one that takes folders. */
export function chosen(input) {
  const files = [...input.files].map((file) => ({ file, folder: file.webkitRelativePath.split("/").at(-2) ?? "" }));
  input.value = ""; // so that the same file can be chosen again
  return files.filter(({ file, folder }) => !folder || (isImage(file) && !file.name.startsWith(".")));
}

/** Takes what is dropped or pasted anywhere on the page; returns whether something is being dragged over it. */
export function useDropAndPaste(onFiles) {
  const [dragging, setDragging] = useState(false);
  useEffect(() => {
    const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    const over = (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setDragging(true);
    };
    const leave = (event) => event.relatedTarget === null && setDragging(false);
    const drop = async (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setDragging(false);
      onFiles(await dropped(event.dataTransfer));
    };
    const paste = (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      onFiles(files.map((file) => ({ file, folder: "" })));
    };
    const events = { dragover: over, dragleave: leave, drop, paste };
    for (const [name, handler] of Object.entries(events)) addEventListener(name, handler);
    return () => {
      for (const [name, handler] of Object.entries(events)) removeEventListener(name, handler);
    };
  });
  return dragging;
}
