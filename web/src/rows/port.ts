/**
 * Where rows come from: the HTTP API, the tables of a storage account, or an archive. Everything that the page shows is
 * read through this port, so that it shows the same from each.
 */

export type Value = string | number | boolean;

/** Times are RFC 3339 texts in UTC. A text that is spread over columns (`task`, `task2`, …) is whole here. */
export interface Row {
  readonly key: string;
  readonly columns: Readonly<Record<string, Value>>;
}

export interface Range {
  /** First key; "" for the beginning of the partition. */
  readonly start?: string;
  /** The key behind the last; "" for its end. */
  readonly end?: string;
  /** Column to texts of which it has one. */
  readonly where?: Readonly<Record<string, readonly string[]>>;
  /** Only these columns; all where it is not given. */
  readonly select?: readonly string[];
  /** At most 1,000. */
  readonly limit?: number;
  /** `next` of the page before. */
  readonly next?: string;
}

export interface Page {
  readonly rows: readonly Row[];
  /** Where the next page begins, "" for the last. */
  readonly next: string;
}

export interface Bytes {
  readonly bytes: Uint8Array;
  /** Where these begin in the file, and how long that is now. */
  readonly start: number;
  readonly total: number;
}

/** Something that happened, as a journal says it. */
export interface Fact {
  /** Number of its row, and its place in that, from 0: `sequence.part` is its cursor. */
  readonly sequence: number;
  readonly part: number;
  /** RFC 3339. */
  readonly time: string;
  /** Such as `task-completed`. */
  readonly kind: string;
  /** `task`, `label`, `run`, `reason`, `because`, … */
  readonly fields: Readonly<Record<string, unknown>>;
}

export interface Rows {
  /** What people see of it: an address, an account, the name of a file. Never a token. */
  readonly name: string;
  /** The id of the graph that alone it has; not there where it may have any. */
  readonly graph?: string;
  /** How many rows a request brings by their keys; one where it is not said. */
  readonly together?: number;
  /** Rows by their keys; null for one that there is not. Throws `Trouble`. */
  get(partition: string, keys: readonly string[]): Promise<readonly (Row | null)[]>;
  /** Throws `Trouble`. */
  page(partition: string, range: Range): Promise<Page>;
  /**
   * A piece of a file of a run, `run.log` or `result.json`: bytes from `start` on, or the last `-start`. It may be
   * shorter than `length`. Throws `Trouble`.
   */
  file(graph: string, task: string, run: number, name: string, start: number, length: number): Promise<Bytes>;
  /**
   * What the journal of a graph says after the event row with this number, whole rows, as soon as there is something;
   * nothing when it is time to look all the same. An archive waits for ever. Throws `Trouble`, and the reason of
   * `signal`.
   */
  news(graph: string, after: number, signal: AbortSignal): Promise<readonly Fact[]>;
}

export type Reason = "away" | "denied" | "missing" | "wrong";

/** What went wrong at a source, in words for people, and what to do about it. */
export class Trouble extends Error {
  constructor(
    readonly reason: Reason,
    message: string,
    readonly remedy = "",
    /** What a server said beside its words, such as the plan as it is now. */
    readonly problem: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
  }
}

/** All pages of a range, one after the other. */
export async function* pages(rows: Rows, partition: string, range: Range): AsyncGenerator<readonly Row[]> {
  let next = "";
  do {
    const page: Page = await rows.page(partition, next ? { ...range, next } : range);
    yield page.rows;
    next = page.next;
  } while (next);
}
