/** Columns of rows as what they hold: what is missing or damaged counts as nothing, for `taskgraph doctor` to name. */

import type { Row } from "../rows/port.ts";

export const text = (row: Row, name: string): string => String(row.columns[name] ?? "");

export function whole(row: Row, name: string): number {
  const value = row.columns[name];
  return typeof value === "number" ? value : 0;
}

export const time = (row: Row, name: string): number => moment(row.columns[name]);

const SECOND_END = "2026-01-01T00:00:00".length;
const seconds = { text: "", time: NaN };

/** Milliseconds since 1970, with microseconds as their fraction; NaN for what is no time. */
export function moment(value: unknown): number {
  if (typeof value !== "string" || !value) return NaN;
  const zone = value.indexOf("Z", SECOND_END) >= 0 ? "Z" : (/[+-]\d\d:\d\d$/.exec(value)?.[0] ?? "");
  const second = value.slice(0, SECOND_END) + zone;
  if (second !== seconds.text) [seconds.text, seconds.time] = [second, Date.parse(second)];
  const fraction = value.slice(SECOND_END, value.length - zone.length);
  return fraction ? seconds.time + Number(fraction) * 1000 : seconds.time;
}

export function list(row: Row, name: string): readonly unknown[] {
  const found = json(row.columns[name]);
  return Array.isArray(found) ? found : [];
}

export const texts = (row: Row, name: string): readonly string[] => list(row, name).map(String);

export const objects = (row: Row, name: string): readonly Readonly<Record<string, unknown>>[] =>
  list(row, name).filter((each) => typeof each === "object" && each !== null) as Record<string, unknown>[];

export function object(row: Row, name: string): Readonly<Record<string, unknown>> {
  const found = json(row.columns[name]);
  return typeof found === "object" && found !== null && !Array.isArray(found) ? (found as Record<string, unknown>) : {};
}

function json(value: unknown): unknown {
  if (typeof value !== "string" || !value) return undefined;
  try {
    return JSON.parse(value) as unknown;
  } catch {
    return undefined;
  }
}
