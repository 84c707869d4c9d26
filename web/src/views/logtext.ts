/** The text of a log: a window of lines over a file of any length; colours as spans. Nothing of it is ever markup. */

import { AnsiUp } from "ansi_up";

import type { Bytes } from "../rows/port.ts";

export const PIECE = 256 * 1024;
const WINDOW_LINES = 200_000;
const NEWLINE = 10;

export interface Line {
  /** Where it begins in the file. */
  readonly at: number;
  readonly text: string;
}

export type Read = (start: number, length: number) => Promise<Bytes>;

const decoder = new TextDecoder();

function join(one: Uint8Array, other: Uint8Array): Uint8Array {
  const made = new Uint8Array(one.length + other.length);
  made.set(one);
  made.set(other, one.length);
  return made;
}

/** Lines that end in these bytes, which begin at `at`; and the bytes of the last one, which has no end. */
function split(bytes: Uint8Array, at: number): { lines: Line[]; rest: Uint8Array } {
  const lines: Line[] = [];
  let from = 0;
  for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, from)) {
    lines.push({ at: at + from, text: decoder.decode(bytes.subarray(from, end)) });
    from = end + 1;
  }
  return { lines, rest: bytes.subarray(from) };
}

/** Where the first line begins in a piece; 0 where none does, as one is longer than the piece: then it is cut. */
function firstLine(bytes: Uint8Array): number {
  const place = bytes.indexOf(NEWLINE) + 1;
  return place === bytes.length ? 0 : place;
}

/** A run of lines of a log; it grows at both ends, and jumps. */
export class LogWindow {
  lines: Line[] = [];
  /** The number of the first line, from 1; undefined while it is not known. */
  first: number | undefined;
  start = 0;
  end = 0;
  total = 0;
  private rest: Uint8Array = new Uint8Array();

  constructor(private readonly read: Read) {}

  /** Begin anew at the end of the file. */
  async atEnd(): Promise<void> {
    this.take(await this.read(-PIECE, PIECE));
  }

  /** Begin anew around a place. */
  async around(place: number): Promise<void> {
    this.take(await this.read(Math.max(0, place - PIECE / 2), PIECE));
  }

  private take({ bytes, start, total }: Bytes): void {
    const cut = start === 0 ? 0 : firstLine(bytes);
    this.start = start + cut;
    this.end = start + bytes.length;
    this.total = total;
    const { lines, rest } = split(bytes.subarray(cut), this.start);
    this.rest = rest;
    this.lines = rest.length > 0 ? [...lines, this.unfinished()] : lines;
    this.first = this.start === 0 ? 1 : undefined;
  }

  private unfinished(): Line {
    return { at: this.end - this.rest.length, text: decoder.decode(this.rest) };
  }

  /** Read what stands before; says how many lines that gave. */
  async earlier(): Promise<number> {
    if (this.start === 0) return 0;
    const from = Math.max(0, this.start - PIECE);
    const { bytes } = await this.read(from, this.start - from);
    const cut = from === 0 ? 0 : firstLine(bytes);
    const { lines, rest } = split(bytes.subarray(cut), from + cut);
    if (rest.length > 0) lines.push({ at: from + bytes.length - rest.length, text: decoder.decode(rest) });
    this.start = from + cut;
    this.lines = [...lines, ...this.lines];
    this.first = this.start === 0 ? 1 : this.first && this.first - lines.length;
    return lines.length;
  }

  /** Read what stands behind; says how many bytes came. */
  async later(): Promise<number> {
    const { bytes, start, total } = await this.read(this.end, PIECE);
    this.total = Math.max(total, this.end);
    if (bytes.length === 0 || start !== this.end) return 0;
    const known = this.rest.length > 0 ? this.lines.slice(0, -1) : this.lines;
    const { lines, rest } = split(join(this.rest, bytes), this.end - this.rest.length);
    this.end += bytes.length;
    this.rest = rest.length > PIECE ? new Uint8Array() : rest;
    const last = rest.length > 0 ? [{ at: this.end - rest.length, text: decoder.decode(rest) }] : [];
    this.lines = [...known, ...lines, ...last];
    this.forget();
    return bytes.length;
  }

  private forget(): void {
    const over = this.lines.length - WINDOW_LINES;
    if (over <= 0) return;
    this.lines = this.lines.slice(over);
    this.start = this.lines[0]!.at;
    if (this.first) this.first += over;
  }

  /** The place in `lines` of the line that has this byte; -1 where that is not in the window. */
  placeOf(at: number): number {
    if (at < this.start || at >= this.end) return -1;
    let [low, high] = [0, this.lines.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.lines[middle]!.at <= at) low = middle;
      else high = middle - 1;
    }
    return this.lines.length > 0 ? low : -1;
  }
}

/** What a terminal would show of a line: behind the last carriage return, as progress bars write. */
export function collapsed(text: string): string {
  const line = text.replace(/\r+$/, "");
  return line.slice(line.lastIndexOf("\r") + 1);
}

const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

/** A line without its colours, as it is searched. */
export function bare(text: string): string {
  return collapsed(text).replace(ESCAPES, "");
}

/** A longer file is not searched whole: what is in the window is. */
export const SEARCHED_MAX = 64 * 1024 * 1024;

/** Where lines with a text begin, of those in a window. */
export function inWindow({ lines }: LogWindow, wanted: string): readonly number[] {
  const text = wanted.toLowerCase();
  return lines.filter((each) => bare(each.text).toLowerCase().includes(text)).map((each) => each.at);
}

/** Where lines with a text begin, over the whole file: given as they are found, with how far the search has come. */
export async function* search(
  read: Read,
  wanted: string,
): AsyncGenerator<{ found: readonly number[]; searched: number; total: number }> {
  const text = wanted.toLowerCase();
  const size = 4 * PIECE;
  let rest: Uint8Array = new Uint8Array();
  for (let at = 0; ;) {
    const { bytes, total } = await read(at, size);
    const { lines, rest: left } = split(join(rest, bytes), at - rest.length);
    at += bytes.length;
    const over = bytes.length === 0 || at >= total;
    if (over && left.length > 0) lines.push({ at: at - left.length, text: decoder.decode(left) });
    rest = left;
    yield {
      found: lines.filter((each) => bare(each.text).toLowerCase().includes(text)).map((each) => each.at),
      searched: at,
      total,
    };
    if (over) return;
  }
}

export interface Piece {
  readonly text: string;
  readonly classes: string;
  /** `rgb(…)` of colours that are not among the sixteen; "" for others. */
  readonly colour: string;
  readonly ground: string;
}

interface Colour {
  readonly rgb: readonly number[];
  readonly class_name: string;
}

interface Fragment {
  readonly text: string;
  readonly bold: boolean;
  readonly faint: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
  readonly fg: Colour | null;
  readonly bg: Colour | null;
}

const named = (colour: Colour | null): string => (colour && colour.class_name !== "truecolor" ? colour.class_name : "");
const mixed = (colour: Colour | null): string =>
  colour && colour.class_name === "truecolor" ? `rgb(${colour.rgb.join(" ")})` : "";

/** A line as pieces of one look each. */
export function pieces(text: string): Piece[] {
  const line = collapsed(text);
  if (!line.includes("\u001b")) return [{ text: line, classes: "", colour: "", ground: "" }];
  const found: Piece[] = [];
  const parser = new AnsiUp() as unknown as {
    ansi_to_html(text: string): string;
    transform_to_html(fragment: Fragment): string;
    process_hyperlink(packet: { text: string }): string;
  };
  const add = (piece: Piece): string => {
    if (piece.text) found.push(piece);
    return "";
  };
  // The package makes markup of fragments; we take the fragments.
  parser.transform_to_html = ({ text: part, bold, faint, italic, underline, fg, bg }) => {
    const looks = [bold && "bold", faint && "faint", italic && "italic", underline && "underline"];
    const colours = [named(fg) && `${named(fg)}-fg`, named(bg) && `${named(bg)}-bg`];
    const all = [...looks, ...colours].filter(Boolean).join(" ");
    return add({ text: part, classes: all, colour: mixed(fg), ground: mixed(bg) });
  };
  parser.process_hyperlink = ({ text: part }) => add({ text: part, classes: "underline", colour: "", ground: "" });
  parser.ansi_to_html(line);
  return found;
}
