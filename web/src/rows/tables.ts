/** Rows straight from the tables of a storage account, by a shared access signature: no server of ours is asked. */

import { indexed } from "./archive.ts";
import { gather } from "./columns.ts";
import { factsOf } from "./facts.ts";
import type { Bytes, Fact, Page, Range, Row, Rows, Value } from "./port.ts";
import { Trouble } from "./port.ts";
import { answered, found, pause } from "./waiting.ts";

const ACCEPT = "application/json;odata=nometadata"; // no other header, so that a browser asks for no leave before
const AT_ONCE = 8;
const TRIES = 4;
const LOGS = "taskgraph-logs";
const MISSING = new Set(["ResourceNotFound", "EntityNotFound", "TableNotFound"]);

type Entity = Record<string, Value> & { PartitionKey: string; RowKey: string };

interface Answer {
  readonly response: Response;
  readonly body: Record<string, unknown>;
}

export class TableRows implements Rows {
  readonly name: string;
  readonly graph?: string;
  private readonly table: string;
  private busy = 0;
  private readonly queue: (() => void)[] = [];

  /**
   * table: such as `https://ACCOUNT.table.core.windows.net/taskgraph`. sas: what stands behind the `?` of a link.
   * A signature for one partition opens that graph, and for others nothing is asked. blobs:
   * `https://ACCOUNT.blob.core.windows.net` and a signature behind a `?`, where files of runs may be read; the same
   * signature where it has none; "" where none may be read.
   */
  constructor(
    table: string,
    private readonly sas: string,
    private readonly blobs = "",
  ) {
    this.table = table.replace(/\/$/, "");
    this.name = new URL(table).host + new URL(table).pathname;
    this.sas = sas.replace(/^\?/, "");
    const [first, last] = ["spk", "epk"].map((name) => new URLSearchParams(this.sas).get(name));
    if (first && first === last) this.graph = first;
  }

  /** One request for each: a filter over many keys would read the whole partition. */
  async get(partition: string, keys: readonly string[]): Promise<readonly (Row | null)[]> {
    if (this.graph && partition !== this.graph) return keys.map(() => null);
    return Promise.all(
      keys.map(async (key) => {
        const place = `(PartitionKey='${quoted(partition)}',RowKey='${quoted(key)}')`;
        const answer = await this.ask(place, "");
        return answer && rowOf(answer.body as Entity);
      }),
    );
  }

  async page(partition: string, range: Range): Promise<Page> {
    if (this.graph && partition !== this.graph) return { rows: await this.beside(this.graph, partition), next: "" };
    const { start, end, where = {}, select, limit, next } = range;
    const parts = [`PartitionKey eq '${literal(partition)}'`];
    if (start) parts.push(`RowKey ge '${literal(start)}'`);
    if (end) parts.push(`RowKey lt '${literal(end)}'`);
    for (const [name, texts] of Object.entries(where)) {
      if (!texts.length) return { rows: [], next: "" };
      parts.push(`(${texts.map((text) => `${name} eq '${literal(text)}'`).join(" or ")})`);
    }
    const query = new URLSearchParams({ $filter: parts.join(" and ") });
    if (select) query.set("$select", ["PartitionKey", "RowKey", ...select].join(","));
    if (limit) query.set("$top", String(limit));
    const [partitionKey, rowKey] = next ? (JSON.parse(next) as string[]) : [];
    if (partitionKey) query.set("NextPartitionKey", partitionKey);
    if (rowKey) query.set("NextRowKey", rowKey);
    const answer = await this.ask("()", query.toString());
    if (!answer) return { rows: [], next: "" }; // the table comes into being with the first graph
    const head = answer.response.headers;
    const rest = [head.get("x-ms-continuation-NextPartitionKey"), head.get("x-ms-continuation-NextRowKey")];
    const rows = (answer.body.value as Entity[]).map(rowOf);
    return { rows, next: rest[0] || rest[1] ? JSON.stringify(rest) : "" };
  }

  async file(graph: string, task: string, run: number, name: string, start: number, length: number): Promise<Bytes> {
    if (!this.blobs) {
      const remedy = "open the page of a server, or a link that opens files too";
      throw new Trouble("denied", "this link opens rows, and no files of runs", remedy);
    }
    const [account = "", signature = this.sas] = this.blobs.split("?");
    const path = [LOGS, graph, task, run, name].map(encodeURIComponent).join("/");
    const address = `${account.replace(/\/$/, "")}/${path}?${signature}`;
    let from = start;
    if (start < 0) {
      const whole = await this.blob(address, {}, "HEAD"); // the service knows no range from the end
      from = Math.max(0, Number(whole.headers.get("Content-Length")) + start);
    }
    const answer = await this.blob(address, { Range: `bytes=${from}-${from + length - 1}` });
    const [, total] = /\/(\d+)$/.exec(answer.headers.get("Content-Range") ?? "") ?? [];
    if (answer.status === 416) return { bytes: new Uint8Array(), start: Number(total ?? 0), total: Number(total ?? 0) };
    const bytes = new Uint8Array(await answer.arrayBuffer());
    return { bytes, start: from, total: Number(total ?? bytes.length) };
  }

  private async blob(address: string, headers: Record<string, string>, method = "GET"): Promise<Response> {
    const answer = await this.fetch(address, headers, method);
    if (answer.ok || answer.status === 416) return answer;
    throw await this.trouble(answer);
  }

  /** Looks for the next event row, ever more rarely, and not while the page is hidden. */
  async news(graph: string, after: number, signal: AbortSignal): Promise<readonly Fact[]> {
    const key = `event:${String(after + 1).padStart(10, "0")}`;
    const range = { start: key, end: "event;", select: ["sequence", "time", "events"] };
    return found(async () => (await this.page(graph, range)).rows.flatMap(factsOf), signal);
  }

  /** What is known of another partition by one graph alone. */
  private async beside(graph: string, partition: string): Promise<readonly Row[]> {
    if (partition !== "index:graphs") return [];
    const [header] = await this.get(graph, ["task-graph"]);
    return header ? [indexed(graph, header)] : [];
  }

  /** null for what there is not. */
  private async ask(place: string, query: string): Promise<Answer | null> {
    while (this.busy >= AT_ONCE) await new Promise<void>((resolve) => this.queue.push(resolve));
    this.busy++;
    try {
      const given = query ? `${query}&${this.sas}` : this.sas;
      const response = await this.fetch(`${this.table}${place}?${given}`, { Accept: ACCEPT });
      if (response.ok) return { response, body: (await response.json()) as Record<string, unknown> };
      const trouble = await this.trouble(response);
      if (response.status === 404 && MISSING.has(String(trouble.problem.code))) return null;
      throw trouble;
    } finally {
      this.busy--;
      this.queue.shift()?.();
    }
  }

  private async fetch(address: string, headers: Record<string, string>, method = "GET"): Promise<Response> {
    for (let tried = 1; ; tried++) {
      try {
        const answer = await answered(address, { method, headers });
        if (answer.status < 500 || tried === TRIES) return answer;
      } catch (error) {
        if (tried === TRIES || (error as Error).name === "TimeoutError") {
          const remedy = "is the account reachable from here, and does it allow this page (CORS)?";
          throw new Trouble("away", `${this.name} does not answer (${(error as Error).message})`, remedy);
        }
      }
      await pause(0.2 * 2 ** tried);
    }
  }

  private async trouble(answer: Response): Promise<Trouble> {
    const text = await answer.text();
    const code = /"code"\s*:\s*"([^"]+)"/.exec(text)?.[1] ?? /<Code>([^<]+)</.exec(text)?.[1] ?? "";
    const problem = { status: answer.status, code };
    if (answer.status === 403 || answer.status === 401) {
      const remedy = "ask for a new link: taskgraph grant ID --read --link";
      return new Trouble("denied", "this link does not open that, or its time is over", remedy, problem);
    }
    const words = `${this.name} answers ${answer.status} ${code}`.trim();
    return new Trouble(answer.status === 404 ? "missing" : answer.status >= 500 ? "away" : "wrong", words, "", problem);
  }
}

const literal = (text: string): string => text.replaceAll("'", "''");

const quoted = (text: string): string => encodeURIComponent(literal(text)).replaceAll("'", "%27");

function rowOf({ PartitionKey, RowKey, ...columns }: Entity): Row {
  delete columns.Timestamp;
  delete columns["odata.etag"];
  void PartitionKey;
  gather(columns);
  return { key: RowKey, columns };
}
