/** A time axis: where its ticks stand and what they say. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND,
  MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY,
];

export interface Tick {
  readonly time: number;
  readonly text: string;
  /** The first of a day. */
  readonly day: boolean;
}

/** Between two times, at least so many milliseconds apart; on whole hours and days of the clock that is chosen. */
export function ticks(from: number, to: number, apart: number, utc: boolean): Tick[] {
  const step = STEPS.find((each) => each >= apart) ?? STEPS.at(-1)!;
  const zone = utc ? 0 : -new Date(from).getTimezoneOffset() * MINUTE;
  const where = utc ? { timeZone: "UTC" } : {};
  const clock = new Intl.DateTimeFormat(undefined, {
    hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...where,
    ...(step < MINUTE ? { second: "2-digit" as const } : {}),
    ...(step < SECOND ? { fractionalSecondDigits: 3 as const } : {}),
  });
  const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", ...where });
  const found: Tick[] = [];
  let before = "";
  for (let time = Math.ceil((from + zone) / step) * step - zone; time <= to; time += step) {
    const today = date.format(time);
    const day = today !== before && (before !== "" || step >= DAY);
    found.push({ time, text: step >= DAY ? today : day ? `${today} ${clock.format(time)}` : clock.format(time), day });
    before = today;
  }
  return found;
}
