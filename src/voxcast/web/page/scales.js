// Scales from quantities to pixels, with ticks where people expect them.

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const ROUND_S = [
  ...[0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30], ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR), ...[1, 2, 5, 10, 20, 50].map((n) => n * DAY),
];

function roundSteps(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power);
}

/** Return ticks within a linear domain, `count` or fewer. */
function linearTicks([low, high], count, isTime) {
  const least = (high - low) / count;
  const steps = isTime ? [...ROUND_S, ...roundSteps(least)] : roundSteps(least);
  const step = steps.find((candidate) => candidate >= least * 0.999) ?? least;
  const first = Math.ceil(low / step - 1e-9);
  const ticks = [];
  for (let n = first; n * step <= high * (1 + 1e-9); n += 1) ticks.push(n * step + 0);
  return ticks;
}

/** Return ticks within a logarithmic domain, `count` or fewer. */
function logTicks([low, high], count, isTime) {
  const powers = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    powers.push(...[1, 2, 5].map((n) => n * 10 ** power));
  }
  let ticks = (isTime ? ROUND_S : powers).filter((tick) => tick >= low && tick <= high);
  if (ticks.length < 2) return linearTicks([low, high], Math.min(count, 4), isTime);
  const stride = Math.ceil(ticks.length / count);
  ticks = ticks.filter((_, n) => n % stride === 0);
  return ticks;
}

/**
 * Return a function from quantities to pixels, with `ticks(count)` and its `domain`.
 *
 * @param {number[]} values - what has to be seen
 * @param {number[]} range - first and last pixel
 * @param {{log?: boolean, isTime?: boolean, zero?: boolean}} options - `zero` lets it begin at 0
 */
export function scale(values, range, { log = false, isTime = false, zero = false } = {}) {
  const finite = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  let low = Math.min(...finite), high = Math.max(...finite);
  if (!finite.length) [low, high] = [log ? 1 : 0, 10];
  if (zero && !log) low = Math.min(low, 0);
  if (log) {
    const margin = Math.max((high / low) ** 0.06, 1.15);
    [low, high] = [low / margin, high * margin];
  } else {
    const margin = (high - low) * 0.06 || Math.abs(high) * 0.5 || 1;
    [low, high] = [zero && low === 0 ? 0 : low - margin, high + margin];
  }
  const along = log
    ? (value) => Math.log(value / low) / Math.log(high / low)
    : (value) => (value - low) / (high - low);
  const place = (value) => range[0] + along(value) * (range[1] - range[0]);
  place.domain = [low, high];
  place.ticks = (count) => (log ? logTicks : linearTicks)([low, high], count, isTime);
  return place;
}
