// Quantities as people write them: 1 h 20 min, 3.2 GB (a GB is 10⁹ bytes), 0.42 USD.

const NBSP = "\u00a0";
const MISSING = "–";
const UNITS_S = { s: 1, sec: 1, m: 60, min: 60, h: 3600, d: 86400 };

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** Return a number with at most `digits` significant digits, its thousands apart. */
export function number(value, digits = 3) {
  if (!isNumber(value)) return MISSING;
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-4) return value.toExponential(1);
  const options = size >= 10 ** digits ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits };
  return value.toLocaleString("en", options).replaceAll(",", "\u202f");
}

/** Return a duration in its two largest units; a request is rounded up, with `Math.ceil`. */
export function duration(seconds, round = Math.round) {
  if (!isNumber(seconds)) return MISSING;
  if (seconds < 99.5 && round === Math.round) return `${number(seconds, 2)}${NBSP}s`;
  const [, step] = [[86400, 3600], [3600, 60], [0, 1]].find(([least]) => seconds >= least);
  let whole = round(seconds / step) * step;
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]
    .map(([unit, length]) => {
      const count = Math.floor(whole / length);
      whole -= count * length;
      return [count, unit];
    })
    .filter(([count]) => count > 0);
  return parts.slice(0, 2).map(([count, unit]) => `${count}${NBSP}${unit}`).join(NBSP) || `0${NBSP}s`;
}

/** Return an amount of memory or storage. */
export function bytes(value) {
  if (!isNumber(value)) return MISSING;
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(value, 1)) / 3)));
  return `${number(value / 1000 ** power, value / 1000 ** power >= 100 ? 3 : 2)}${NBSP}${units[power]}`;
}

/** Return a price. */
export function usd(value) {
  return isNumber(value) ? `${number(value, 2)}${NBSP}USD` : MISSING;
}

/** Return core-hours. */
export function coreHours(value) {
  return isNumber(value) ? `${number(value, 2)} core-h` : MISSING;
}

/** Return a share as per cent. */
export function percent(share, digits = 3) {
  return isNumber(share) ? `${number(100 * share, digits)}${NBSP}%` : MISSING;
}

/** Return the seconds of a text such as `2h`, `1 h 30 min`; NaN where it is no duration. */
export function secondsOf(text) {
  const parts = [...text.matchAll(/([\d.]+)\s*([a-z]+)/gi)];
  const rest = text.replaceAll(/([\d.]+)\s*([a-z]+)/gi, "").trim();
  if (!parts.length || rest) return NaN;
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * (UNITS_S[unit.toLowerCase()] ?? NaN), 0);
}

/** Return an allocation in words, such as `4 CPUs` or `2 CPUs + 1 GPU`. */
export function allocation({ device, cpus, gpus }) {
  const plural = (count, name) => `${count}${NBSP}${name}${count === 1 ? "" : "s"}`;
  const parts = [plural(Number(cpus), "CPU")];
  if (Number(gpus)) parts.push(plural(Number(gpus), "GPU"));
  else if (device && device !== "cpu") parts.push(device);
  return parts.join(" + ");
}

/** Return a point in time as a day, or the text as it is. */
export function day(text) {
  const at = new Date(text ?? "");
  return Number.isNaN(at.getTime()) ? String(text ?? MISSING) : at.toISOString().slice(0, 10);
}
