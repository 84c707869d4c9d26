/** Rows of an archive (schemas/archive.json): a file that is read whole, and asked from memory. */

import { plain } from "./columns.ts";
import type { Bytes, Fact, Page, Range, Row, Rows, Value } from "./port.ts";
import { Trouble } from "./port.ts";

const FORMAT = 1;
const PAGE_ROWS = 1_000;
const BYTES_MAX = 1 << 30;

interface Line {
  readonly archive?: string;
  readonly format?: number;
  readonly graph?: string;
  readonly row?: string;
  readonly columns?: Record<string, unknown>;
  readonly log?: { readonly task: string; readonly run: number; readonly name: string };
  readonly data?: string;
  readonly end?: { readonly rows: number; readonly complete: boolean };
}

export class ArchiveRows implements Rows {
  private readonly partitions = new Map<string, readonly Row[]>();

  private constructor(
    readonly name: string,
    /** The id of the graph in it. */
    readonly graph: string,
    /** Whether these were all rows at one moment, and the graph could not move. */
    readonly complete: boolean,
    rows: readonly Row[],
    private readonly files: ReadonlyMap<string, readonly Uint8Array[]>,
  ) {
    this.partitions.set(graph, rows);
    this.partitions.set("index:graphs", [indexed(graph, rows.find((row) => row.key === "task-graph"))]);
  }

  /** Throws `Trouble` for a file that is no archive, or is cut off. */
  static async open(file: Blob): Promise<ArchiveRows> {
    const name = (file as File).name || "archive";
    const reading = new Reading(name);
    try {
      for await (const line of lines(file)) reading.take(line);
      const { graph, complete, rows, files } = reading.whole();
      return new ArchiveRows(name, graph, complete, rows, files);
    } catch (error) {
      if (error instanceof Trouble) throw error;
      const words = `${name} is no archive of a graph, or it is damaged`;
      throw new Trouble("wrong", words, "make one: taskgraph archive ID");
    }
  }

  async get(partition: string, keys: readonly string[]): Promise<readonly (Row | null)[]> {
    const rows = this.partitions.get(partition) ?? [];
    return keys.map((key) => {
      const row = rows[placeOf(rows, key)];
      return row?.key === key ? row : null;
    });
  }

  async page(partition: string, { start = "", end = "", where = {}, limit = PAGE_ROWS, next }: Range): Promise<Page> {
    const rows = this.partitions.get(partition) ?? [];
    const last = end ? placeOf(rows, end) : rows.length;
    const wanted = Object.entries(where);
    const found: Row[] = [];
    let place = next ? Number(next) : placeOf(rows, start);
    for (; place < last && found.length < limit; place++) {
      const row = rows[place] as Row;
      if (wanted.every(([name, texts]) => texts.includes(String(row.columns[name] ?? "")))) found.push(row);
    }
    return { rows: found, next: place < last ? String(place) : "" };
  }

  async file(_: string, task: string, run: number, name: string, start: number, length: number): Promise<Bytes> {
    const pieces = this.files.get(fileKey(task, run, name));
    if (!pieces) throw new Trouble("missing", `run ${run} has no ${name} in ${this.name}`, "archive it with --logs");
    const total = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const from = start < 0 ? Math.max(0, total + start) : Math.min(start, total);
    const to = Math.min(total, start < 0 ? total : from + length);
    const bytes = new Uint8Array(to - from);
    let place = 0;
    for (const piece of pieces) {
      const some = piece.subarray(Math.max(0, from - place), Math.max(0, to - place));
      if (some.length) bytes.set(some, Math.max(0, place - from));
      place += piece.length;
    }
    return { bytes, start: from, total };
  }

  news(_: string, __: number, signal: AbortSignal): Promise<readonly Fact[]> {
    return new Promise((_resolve, reject) => {
      signal.throwIfAborted();
      signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
    });
  }
}

/** What the index of graphs has of one. */
export function indexed(graph: string, header: Row | undefined): Row {
  const columns: Record<string, Value> = { graph, name: nameIn(header) };
  for (const name of ["created", "tasks", "schedule", "firedFor"]) {
    const value = header?.columns[name];
    if (value !== undefined) columns[name] = value;
  }
  return { key: `0:${graph}`, columns };
}

class Reading {
  private readonly rows: Row[] = [];
  private readonly files = new Map<string, Uint8Array[]>();
  private graph = "";
  private end: Line["end"];

  constructor(private readonly name: string) {}

  take(text: string): void {
    const line = JSON.parse(text) as Line;
    if (!this.graph) {
      if (line.archive !== "taskgraph" || typeof line.graph !== "string") throw new SyntaxError("no head");
      if (line.format !== FORMAT) {
        const words = `${this.name} is an archive of format ${line.format}`;
        throw new Trouble("wrong", words, "use a newer version of this page");
      }
      this.graph = line.graph;
    } else if (line.row !== undefined) this.rows.push({ key: line.row, columns: plain(line.columns ?? {}) });
    else if (line.log) {
      const key = fileKey(line.log.task, line.log.run, line.log.name);
      this.files.set(key, [...(this.files.get(key) ?? []), decoded(line.data ?? "")]);
    } else if (line.end) this.end = line.end;
  }

  whole(): { graph: string; complete: boolean; rows: readonly Row[]; files: Map<string, Uint8Array[]> } {
    if (this.end?.rows !== this.rows.length) throw new Trouble("wrong", `${this.name} is cut off: its end is missing`);
    return { graph: this.graph, complete: this.end.complete, rows: this.rows, files: this.files };
  }
}

async function* lines(file: Blob): AsyncGenerator<string> {
  const reader = file.stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let size = 0;
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    size += piece.value.length;
    if (size > BYTES_MAX) throw new Trouble("wrong", "the archive unpacks to more than 1 GiB");
    const found = (rest + decoder.decode(piece.value, { stream: true })).split("\n");
    rest = found.pop() as string;
    yield* found;
  }
  if (rest) yield rest;
}

function nameIn(header: Row | undefined): string {
  const metadata = JSON.parse(String(header?.columns.metadata || "{}")) as { name?: unknown };
  return typeof metadata.name === "string" ? metadata.name : "";
}

/** The place of the first row whose key is this, or comes after it. */
function placeOf(rows: readonly Row[], key: string): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle] as Row).key < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

const fileKey = (task: string, run: number, name: string): string => `${task}/${run}/${name}`;

const decoded = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
