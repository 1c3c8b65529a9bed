// Looks at an image before it is sent: can it be read, is it sharp, has it been given already. Nothing leaves the browser.

const SIDE = 256; // thumbnails and checks are made at this size
const HASH_SIDE = 12;
const SAME_BITS = 5; // of 132 that may differ in a copy
const SHARP = 45; // variance of the Laplacian; below, an image of this size looks blurred
const SMALL = 48; // pixels of the shorter side

let newest = 0;

/** An image that somebody gave: {id, file, name, thumbnail, marks, state}. `marks` are keys of the texts. */
export async function inspect(file) {
  newest += 1;
  const image = { id: newest, file, name: file.name || "image", thumbnail: null, hash: null, marks: [], usable: true };
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    const readableByService = /tiff?$/i.test(file.type || file.name);
    return { ...image, usable: readableByService, marks: [readableByService ? "noPreview" : "unreadable"] };
  }
  const { width, height } = bitmap;
  const scale = Math.min(1, SIDE / Math.max(width, height));
  const canvas = drawn(bitmap, Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
  const small = drawn(bitmap, HASH_SIDE + 1, HASH_SIDE);
  bitmap.close();
  const marks = [];
  if (Math.min(width, height) < SMALL) marks.push("small");
  else if (sharpness(canvas) < SHARP) marks.push("blurred");
  return { ...image, width, height, marks, hash: differenceHash(small), thumbnail: await blobUrl(canvas) };
}

function drawn(bitmap, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  return canvas;
}

async function blobUrl(canvas) {
  return URL.createObjectURL(await canvas.convertToBlob({ type: "image/webp", quality: 0.85 }));
}

function grey(canvas) {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const values = new Float32Array(width * height);
  for (let index = 0; index < values.length; index += 1) {
    const at = 4 * index;
    values[index] = 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
  }
  return values;
}

/** Variance of the Laplacian: edges make it large, blur makes it small. */
export function sharpness(canvas) {
  const { width, height } = canvas;
  const values = grey(canvas);
  let sum = 0;
  let squares = 0;
  let number = 0;
  for (let y = 1; y < height - 1; y += 1) {
    for (let x = 1; x < width - 1; x += 1) {
      const at = y * width + x;
      const edge = values[at - 1] + values[at + 1] + values[at - width] + values[at + width] - 4 * values[at];
      sum += edge;
      squares += edge * edge;
      number += 1;
    }
  }
  return number ? squares / number - (sum / number) ** 2 : 0;
}

/** One bit for each pixel that is brighter than its right neighbour, of a tiny copy. */
function differenceHash(canvas) {
  const values = grey(canvas);
  const bits = [];
  for (let y = 0; y < HASH_SIDE; y += 1) {
    for (let x = 0; x < HASH_SIDE; x += 1) {
      const at = y * (HASH_SIDE + 1) + x;
      bits.push(values[at] > values[at + 1] + 2);
    }
  }
  return bits;
}

/** Marks images that are copies of an earlier one of the list. */
export function markDuplicates(images) {
  return images.map((image, index) => {
    const copy = image.hash && images.slice(0, index).some((earlier) => earlier.hash && alike(image.hash, earlier.hash));
    const marks = image.marks.filter((mark) => mark !== "duplicate");
    return { ...image, marks: copy ? [...marks, "duplicate"] : marks };
  });
}

function alike(one, other) {
  let different = 0;
  for (let index = 0; index < one.length; index += 1) different += one[index] !== other[index];
  return different <= SAME_BITS;
}

export function forget(image) {
  if (image.thumbnail) URL.revokeObjectURL(image.thumbnail);
}
