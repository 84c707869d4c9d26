/** Rows of a server of the HTTP API, and its answers to what it judges. */

import { plain } from "./columns.ts";
import { saidFact } from "./facts.ts";
import type { Bytes, Fact, Page, Range, Reason, Row, Rows } from "./port.ts";
import { Trouble } from "./port.ts";
import { answered, found, holding, pause, visible } from "./waiting.ts";

const KEYS_MAX = 100;
const READS_MAX = 64;
/** Pages of up to so many rows go in one request with what else is read: that has 1,000 rows at most. */
const SHORT_PAGE = 100;
const WAIT_SECONDS = 35;
/** Who waits, however shortly, gets what the server has read for all that wait. */
const LOOK_SECONDS = 0.2;
/** More than a server gives at a time, so that it never cuts a row in two. */
const FACTS_MAX = 10_000;
const REST_SECONDS = 30;
const TRIES = 4;
const REASONS: Readonly<Record<number, Reason>> = { 401: "denied", 403: "denied", 404: "missing", 429: "away" };
const FILES: Readonly<Record<string, string>> = { "run.log": "log", "result.json": "result" };

interface StoredRow {
  key: string;
  columns: Record<string, unknown>;
}

interface Stored {
  rows: (StoredRow | null)[];
  next: string | null;
}

interface Waiting {
  readonly address: string;
  readonly found: (stored: Stored) => void;
  readonly failed: (error: unknown) => void;
}

export class ApiRows implements Rows {
  readonly name: string;
  readonly together = KEYS_MAX;
  private made: Waiting[] = [];

  /** address: such as `https://host`, or `""` for the server of this page. token: "" for none. */
  constructor(
    private readonly address: string,
    private readonly token: string,
  ) {
    this.name = address.replace(/^https?:\/\//, "") || globalThis.location?.host || "this server";
  }

  async get(partition: string, keys: readonly string[]): Promise<readonly (Row | null)[]> {
    const asked: Promise<Stored>[] = [];
    for (let start = 0; start < keys.length; start += KEYS_MAX) {
      const query = new URLSearchParams(keys.slice(start, start + KEYS_MAX).map((key) => ["key", key]));
      asked.push(this.read(`/partitions/${encodeURIComponent(partition)}/rows?${query}`));
    }
    return (await Promise.all(asked)).flatMap((each) => each.rows.map((row) => row && decoded(row)));
  }

  async page(partition: string, range: Range): Promise<Page> {
    const query = new URLSearchParams();
    if (range.start) query.append("start", range.start);
    if (range.end) query.append("end", range.end);
    for (const [name, texts] of Object.entries(range.where ?? {})) {
      for (const text of texts) query.append(`where.${name}`, text);
    }
    for (const name of range.select ?? []) query.append("select", name);
    if (range.limit) query.append("limit", String(range.limit));
    if (range.next) query.append("page", range.next);
    const address = `/partitions/${encodeURIComponent(partition)}/rows?${query}`;
    const short = (range.limit ?? Infinity) <= SHORT_PAGE;
    const stored = short ? await this.read(address) : ((await this.ask("GET", address)) as Stored);
    return { rows: stored.rows.map((row) => decoded(row as StoredRow)), next: stored.next ?? "" };
  }

  async file(graph: string, task: string, run: number, name: string, start: number, length: number): Promise<Bytes> {
    const known = FILES[name];
    if (!known) return this.anyFile(graph, task, run, name, Math.max(0, start), length);
    const path = `/graphs/${encodeURIComponent(graph)}/tasks/${encodeURIComponent(task)}/runs/${run}/${known}`;
    const range = start < 0 ? `bytes=${start}` : `bytes=${start}-${start + length - 1}`;
    const answer = await this.fetch("GET", path, { Range: range }, undefined, undefined, [416]);
    const [, from, total] = /bytes (\d+|\*).*\/(\d+)/.exec(answer.headers.get("Content-Range") ?? "") ?? [];
    if (from === "*" || answer.status === 416) {
      return { bytes: new Uint8Array(), start: Number(total ?? 0), total: Number(total ?? 0) };
    }
    const bytes = new Uint8Array(await answer.arrayBuffer());
    return { bytes, start: Number(from ?? 0), total: Number(total ?? bytes.length) };
  }

  private async anyFile(
    graph: string,
    task: string,
    run: number,
    name: string,
    start: number,
    length: number,
  ): Promise<Bytes> {
    const path = `/graphs/${[graph, "logs", task, run, name].map(encodeURIComponent).join("/")}`;
    const answer = await this.fetch("GET", `${path}?offset=${start}&limit=${Math.max(1, length)}`, {});
    const bytes = new Uint8Array(await answer.arrayBuffer());
    return { bytes, start, total: start + bytes.length };
  }

  /** A long poll while the page is seen, unless other tabs have many; then a pause where the graph has ended. */
  async news(graph: string, after: number, signal: AbortSignal): Promise<readonly Fact[]> {
    await visible(signal);
    const path = `/graphs/${encodeURIComponent(graph)}/events?since=${after}&limit=${FACTS_MAX}`;
    const asked = async (address: string): Promise<readonly Fact[]> => {
      const answer = (await this.ask("GET", address, undefined, signal)) as { events: Record<string, unknown>[] };
      return answer.events.map(saidFact);
    };
    const began = Date.now();
    const facts = await holding((held) =>
      held ? asked(`${path}&wait=${WAIT_SECONDS}`) : found(() => asked(`${path}&wait=${LOOK_SECONDS}`), signal),
    );
    if (!facts.length && Date.now() - began < (WAIT_SECONDS * 1000) / 2) await pause(REST_SECONDS, signal);
    return facts;
  }

  /**
   * The answer of a route as JSON. path: behind `/api/v1`. Throws `Trouble`, whose `problem` is what the server said
   * (RFC 9457). seconds: for an answer that takes the server longer than others.
   */
  async ask(method: string, path: string, body?: unknown, signal?: AbortSignal, seconds?: number): Promise<unknown> {
    const said = body === undefined ? {} : { "Content-Type": "application/json" };
    const text = body === undefined ? undefined : JSON.stringify(body);
    const answer = await this.fetch(method, path, said, text, signal, [], seconds);
    return answer.json().catch(() => {
      throw new Trouble("wrong", `${this.name} does not answer as a server of taskgraph`, "check the address");
    });
  }

  private async fetch(
    method: string,
    path: string,
    headers: Record<string, string>,
    body?: string,
    signal?: AbortSignal,
    taken: readonly number[] = [],
    seconds?: number,
  ): Promise<Response> {
    const all = this.token ? { ...headers, Authorization: `Bearer ${this.token}` } : headers;
    for (let tried = 1; ; tried++) {
      let answer: Response;
      try {
        const said = body === undefined ? {} : { body };
        const until = signal ? { signal } : {};
        answer = await answered(`${this.address}/api/v1${path}`, { method, headers: all, ...said, ...until }, seconds);
      } catch (error) {
        signal?.throwIfAborted();
        const words = `${this.name} does not answer (${(error as Error).message})`;
        throw new Trouble("away", words, "is the server running?");
      }
      if (answer.ok || taken.includes(answer.status)) return answer;
      const again = Number(answer.headers.get("Retry-After"));
      const unread = answer.status === 429 || (answer.status === 503 && method === "GET");
      if (!unread || tried === TRIES) throw await trouble(this.name, answer);
      await pause(Math.min(again || tried, 5), signal);
    }
  }

  /** Readings that begin in one turn go in one request. */
  private read(address: string): Promise<Stored> {
    return new Promise((resolve, reject) => {
      if (!this.made.length) setTimeout(() => this.send());
      this.made.push({ address, found: resolve, failed: reject });
    });
  }

  private send(): void {
    const made = this.made.splice(0);
    for (let start = 0; start < made.length; start += READS_MAX) void this.answer(made.slice(start, start + READS_MAX));
  }

  private async answer(waiting: readonly Waiting[]): Promise<void> {
    try {
      const one = waiting.length === 1;
      const addresses = waiting.map((each) => each.address);
      const read = one ? { answers: [null] } : await this.ask("POST", "/reads", addresses);
      const { answers } = read as { answers: (Stored | null)[] };
      // What is missing did not fit in the answer, or has a problem that it gets by itself.
      const whole = answers.map((each, place) => each ?? this.ask("GET", addresses[place] as string));
      waiting.forEach((each, place) => void Promise.resolve(whole[place] as Stored).then(each.found, each.failed));
    } catch (error) {
      for (const each of waiting) each.failed(error);
    }
  }
}

function decoded(row: StoredRow): Row {
  return { key: row.key, columns: plain(row.columns) };
}

async function trouble(name: string, answer: Response): Promise<Trouble> {
  return refused(name, answer.status, (await answer.json().catch(() => ({}))) as Record<string, unknown>);
}

/** What a refusal means. problem: what was said beside the status (RFC 9457). */
export function refused(name: string, status: number, problem: Readonly<Record<string, unknown>>): Trouble {
  const reason = REASONS[status] ?? (status >= 500 ? "away" : "wrong");
  const detail = typeof problem.detail === "string" ? problem.detail : `${name} answers ${status}`;
  const remedy = status === 401 ? "open the page by a link with a token" : "";
  return new Trouble(reason, detail, remedy, { ...problem, status });
}
