/** Documents of edits and extensions as they are written in the page: where each value stands, what they begin with. */

import type { Graph } from "../model/graph.ts";
import { text, texts } from "../model/columns.ts";
import { CODE } from "../model/states.ts";
import type { Task } from "../model/task.ts";
import { Trouble } from "../rows/port.ts";

/** What is wrong with a document, and where; line: 0 where that is not known. */
export interface Problem {
  readonly line: number;
  readonly pointer: string;
  readonly message: string;
  readonly remedy: string;
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|\n|[^\s{}[\],:"]+/g;

/** The line of each value of a text that is JSON, by its pointer (RFC 6901); of a member that of its key. */
export function linesOf(json: string): ReadonlyMap<string, number> {
  const lines = new Map<string, number>();
  const open: { pointer: string; place: number; key: string | null }[] = [];
  let line = 1;
  let isKey = false;
  const pointer = (): string => {
    const inside = open.at(-1);
    return inside ? `${inside.pointer}/${inside.key ?? inside.place}` : "";
  };
  const note = (): void => void (lines.has(pointer()) || lines.set(pointer(), line));
  for (const [token] of json.matchAll(TOKENS)) {
    const inside = open.at(-1);
    if (token === "\n") line++;
    else if (token === "{" || token === "[") {
      note();
      open.push({ pointer: pointer(), place: 0, key: null });
      isKey = token === "{";
    } else if (token === "}" || token === "]") {
      open.pop();
      isKey = false;
    } else if (token === ",") {
      if (!inside) continue;
      isKey = inside.key !== null;
      inside.place++;
    } else if (isKey && inside) {
      inside.key = String(JSON.parse(token)).replaceAll("~", "~0").replaceAll("/", "~1");
      isKey = false;
      note();
    } else if (token !== ":") note();
  }
  return lines;
}

/** Where a value stands; of one that is missing, where that stands which lacks it. */
export function lineOf(lines: ReadonlyMap<string, number>, pointer: string): number {
  for (let at = pointer; at; at = at.slice(0, at.lastIndexOf("/"))) {
    const line = lines.get(at);
    if (line) return line;
  }
  return lines.get("") ?? 0;
}

/** Why a text is no object of JSON; null where it is one. */
export function notJson(json: string): Problem | null {
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return null;
    return { line: 1, pointer: "", message: "The document is no object.", remedy: "Write it between { and }." };
  } catch (error) {
    const message = (error as Error).message;
    const at = /position (\d+)/.exec(message)?.[1];
    const end = at === undefined && /end of/i.test(message) ? json.length : Number(at);
    const line = /line (\d+)/.exec(message)?.[1] ?? (Number.isNaN(end) ? 0 : json.slice(0, end).split("\n").length);
    const words = message.replace(/ (in JSON )?at position.*$/, "").replace(/^JSON\.parse: /, "");
    return { line: Number(line), pointer: "", message: `This is no JSON: ${words}.`, remedy: "" };
  }
}

/** What the API found wrong with a document, at the lines of this text. */
export function problemsOf(trouble: unknown, json: string): readonly Problem[] {
  const found = trouble instanceof Trouble ? trouble.problem.problems : undefined;
  if (!Array.isArray(found) || notJson(json)) return [];
  const lines = linesOf(json);
  const placed = (found as Partial<Problem>[]).map(({ pointer = "", message = "", remedy = "" }) => {
    return { line: lineOf(lines, pointer), pointer, message, remedy };
  });
  return placed.sort((a, b) => a.line - b.line);
}

const NOT_STARTED: ReadonlySet<number> = new Set([CODE.unscheduled!, CODE.pending!]);

const written = (value: unknown): string => JSON.stringify(value, null, 2);

/** Where there is no task that may be edited, one that is made up. */
function example(graph: Graph): string {
  const place = graph.state.findIndex((code) => NOT_STARTED.has(code));
  return graph.labels[place] ?? "publish";
}

export function editExample(graph: Graph): string {
  return written({ update: { [example(graph)]: { reruns: 2 } }, reason: "why, for the journal" });
}

/** An edit that leaves a task as it is now. */
export function editOf(graph: Graph, { label, row, definition, requires, budget, held }: Task): string {
  const direct = texts(row, "requires");
  const optional = new Set(texts(row, "optional"));
  const needs = requires.map((each) =>
    optional.has(graph.ids[each.place]!) ? { label: each.label, optional: true } : each.label,
  );
  const same = direct.length === needs.length && direct.every((each) => !each.startsWith("join"));
  const now = {
    ...(same ? { requires: needs } : {}),
    reruns: budget.rerunsAllowed,
    ...(text(row, "priority") ? { priority: text(row, "priority") } : {}),
    active: !held.includes("inactive"),
    task: definition,
  };
  return written({ update: { [label]: now } });
}

export function extensionExample(graph: Graph): string {
  const more = { requires: [example(graph)], task: { payload: { command: ["echo", "more"] } } };
  return written({ tasks: { more } });
}

const ADDRESS_MAX = 1_500;

const keyOf = (id: string, kind: string): string => `taskgraph-document-${id}-${kind}`;

/** What of a document goes into the address: all of it, or that this tab keeps it. */
export function keep(id: string, kind: string, json: string): { document: string | null; kept: boolean } {
  if (json.length <= ADDRESS_MAX) return { document: json, kept: false };
  sessionStorage.setItem(keyOf(id, kind), json);
  return { document: null, kept: true };
}

/** The document that an address names; "" for none. */
export function documentOf(id: string, query: URLSearchParams): string {
  const kept = query.get("kept") === "1" ? sessionStorage.getItem(keyOf(id, query.get("change") ?? "")) : null;
  return kept ?? query.get("document") ?? "";
}
