/** Times, durations and numbers as people read them. One switch says how times are shown. */

import { signal } from "@preact/signals";

export type TimeMode = "local" | "utc" | "relative";
const MODES: readonly TimeMode[] = ["local", "utc", "relative"];
export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

function kept<T extends string>(name: string, allowed: readonly T[]): T {
  const found = localStorage.getItem(name) as T | null;
  return found && allowed.includes(found) ? found : allowed[0]!;
}

export const timeMode = signal<TimeMode>(kept("times", MODES));
export const theme = signal<Theme>(kept("theme", THEMES));

/** The present, to the second, while the page is seen. */
export const now = signal(Date.now());

export function nextTimeMode(): void {
  timeMode.value = MODES[(MODES.indexOf(timeMode.value) + 1) % MODES.length]!;
  localStorage.setItem("times", timeMode.value);
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length]!;
  localStorage.setItem("theme", theme.value);
  showTheme();
}

export function showTheme(): void {
  document.documentElement.style.colorScheme = theme.value === "system" ? "light dark" : theme.value;
}

export function startClock(): void {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
  }, 1000);
}

const STEPS: readonly (readonly [number, string])[] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
];

/** 75 s as “1 min 15 s”: the two largest units; below 10 s with a tenth. */
export function duration(milliseconds: number): string {
  if (!Number.isFinite(milliseconds)) return "";
  const size = Math.max(0, milliseconds);
  if (size < 1000) return `${Math.round(size)} ms`;
  if (size < 10_000) return `${(size / 1000).toFixed(1)} s`;
  const place = STEPS.findIndex(([unit]) => size >= unit);
  const [unit, name] = STEPS[place]!;
  const first = `${Math.floor(size / unit)} ${name}`;
  const smaller = STEPS[place + 1];
  const rest = smaller ? Math.floor((size % unit) / smaller[0]) : 0;
  return rest > 0 ? `${first} ${rest} ${smaller![1]}` : first;
}

export function milliseconds(text: unknown): number {
  return typeof text === "string" ? Date.parse(text) : Number.NaN;
}

const pad = (value: number, width = 2): string => String(value).padStart(width, "0");

function utc(time: number): string {
  return `${new Date(time).toISOString().slice(0, 19).replace("T", " ")}Z`;
}

function local(time: number): string {
  const at = new Date(time);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

function relative(time: number): string {
  const gone = now.value - time;
  if (Math.abs(gone) < 1500) return "now";
  const size = Math.abs(gone) < 10_000 ? `${Math.round(Math.abs(gone) / 1000)} s` : duration(Math.abs(gone));
  return gone > 0 ? `${size} ago` : `in ${size}`;
}

/** A time in the mode that is switched on; "" for none. */
export function timeText(time: number, mode: TimeMode = timeMode.value): string {
  if (!Number.isFinite(time)) return "";
  return mode === "utc" ? utc(time) : mode === "local" ? local(time) : relative(time);
}

/** All three readings of a time, for a title. */
export function timeTitle(time: number): string {
  return Number.isFinite(time) ? `${utc(time)} · ${local(time)} here` : "";
}

const NUMBERS = new Intl.NumberFormat("en");

export function count(value: number): string {
  return NUMBERS.format(value);
}

export function many(value: number, one: string, more = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : more}`;
}

export function bytes(size: number): string {
  const unit = size < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(size) / 10));
  const value = size / 1024 ** unit;
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export function percent(part: number, whole: number): string {
  if (whole === 0) return "100 %";
  const value = (100 * part) / whole;
  return `${part < whole ? Math.min(99, Math.floor(value)) : 100} %`;
}

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** A text of others in one line, with what would turn or hide its letters shown by its number. */
export function shown(text: string): string {
  return text.replace(HIDDEN, (each) => `‹${each.charCodeAt(0).toString(16)}›`);
}
