// Numbers, times and sizes as people read them.
const LANGUAGE = "en";
const relative = new Intl.RelativeTimeFormat(LANGUAGE, { numeric: "auto", style: "long" });
const moment = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "medium", timeStyle: "short" });
const whole = new Intl.NumberFormat(LANGUAGE);
const STEPS = [
  ["second", 60],
  ["minute", 60],
  ["hour", 24],
  ["day", 30],
  ["month", 12],
  ["year", Infinity],
];

export const count = (number) => whole.format(number);

/** "1 image", "5 images". */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A share of 0 to 1 as "87 %". */
export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;

/** A figure that is in percent already. */
export const points = (number, digits = 1) => `${number.toFixed(digits).replace("-", "−")} %`;

export const distance = (number) => number.toFixed(3);

export function ago(text) {
  let value = (new Date(text).getTime() - Date.now()) / 1000;
  if (value > -10 && value < 10) return "just now";
  for (const [unit, length] of STEPS) {
    if (Math.abs(value) < length) return relative.format(Math.round(value), unit);
    value /= length;
  }
  return "";
}

export const date = (text) => moment.format(new Date(text));

export function bytes(number) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let step = 0;
  while (number >= 1000 && step < units.length - 1) {
    number /= 1000;
    step += 1;
  }
  return `${number < 10 && step > 0 ? number.toFixed(1) : Math.round(number)} ${units[step]}`;
}

export function duration(seconds) {
  if (seconds < 90) return plural(Math.round(seconds), "second");
  if (seconds < 5400) return plural(Math.round(seconds / 60), "minute");
  if (seconds < 172800) return plural(Math.round(seconds / 3600), "hour");
  return plural(Math.round(seconds / 86400), "day");
}

/** The 95 % interval of a share as Wilson gives it, for shares that the service did not give one for. */
export function wilson(right, images) {
  if (!images) return [0, 1];
  const z = 1.96;
  const share = right / images;
  const base = 1 + (z * z) / images;
  const middle = (share + (z * z) / (2 * images)) / base;
  const half = (z * Math.sqrt((share * (1 - share)) / images + (z * z) / (4 * images * images))) / base;
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}
