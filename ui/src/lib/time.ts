// Times and durations for people. A record's own number is always shown next to them, on hover.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration with two units at most: `350 ms`, `2.4 s`, `3 min 20 s`, `2 d 4 h`. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return pair(ms, MINUTE, "min", SECOND, "s");
  if (ms < DAY) return pair(ms, HOUR, "h", MINUTE, "min");
  return pair(ms, DAY, "d", HOUR, "h");
}

function pair(ms: number, unit: number, name: string, small: number, smallName: string): string {
  const whole = Math.floor(ms / unit);
  const rest = Math.floor((ms % unit) / small);
  return rest === 0 ? `${whole} ${name}` : `${whole} ${name} ${rest} ${smallName}`;
}

/** How long ago, or how far ahead, a time is. */
export function relative(at: number, now: number): string {
  const past = now - at;
  if (Math.abs(past) < 5 * SECOND) return "just now";
  const length = Math.abs(past);
  const text =
    length < MINUTE
      ? `${Math.floor(length / SECOND)} s`
      : length < HOUR
        ? `${Math.floor(length / MINUTE)} min`
        : length < DAY
          ? `${Math.floor(length / HOUR)} h`
          : `${Math.floor(length / DAY)} d`;
  return past >= 0 ? `${text} ago` : `in ${text}`;
}

/** A time in the reader's zone, to the millisecond, with the zone. */
export function absolute(at: number): string {
  if (!Number.isFinite(at) || Math.abs(at) > 8.64e15) return String(at);
  const date = new Date(at);
  const two = (n: number): string => String(n).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const ms = String(date.getMilliseconds()).padStart(3, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${ms}`;
  const offset = -date.getTimezoneOffset();
  const sign = offset < 0 ? "−" : "+";
  const zone = `${sign}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  return `${day} ${time} UTC${zone}`;
}
