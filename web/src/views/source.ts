/** The source that the page reads now, and what opens it: a token is kept for this tab alone. */

import { signal } from "@preact/signals";

import { hasPython } from "../own_worker.ts";
import { loaded, TabApi } from "../python.ts";
import type { Opening } from "../python_worker.ts";
import { ApiRows } from "../rows/api.ts";
import { type Rows, Trouble } from "../rows/port.ts";
import { TableRows } from "../rows/tables.ts";
import { type Secrets, takeSecrets } from "../route.ts";

export interface Source {
  readonly rows: Rows;
  /** The server behind the page; null where there is none. */
  readonly api: ApiRows | null;
  /** What judges and plans: that server, or Python in this tab; null in a report. */
  readonly judge: Pick<ApiRows, "ask"> | null;
  /** Grows with each token or source, so that what was refused is asked for again. */
  readonly number: number;
}

const TOKEN = "taskgraph-token";
const TABLE = "taskgraph-table";

function overApi(number: number): Source {
  const api = new ApiRows("", sessionStorage.getItem(TOKEN) ?? "");
  return { rows: api, api, judge: api, number };
}

function alone(rows: Rows, opening: Opening): Source {
  const number = nextNumber();
  return { rows, api: null, judge: hasPython() ? new TabApi(number, opening) : null, number };
}

/** null where nothing is open yet. */
export const source = signal<Source | null>(null);

/** Why a token is asked for; "" where none is. */
export const wanted = signal("");

/** Whether no server stands behind the page: the copies of `web deploy` and `report` say so. */
const isAlone = (): boolean => document.querySelector('meta[name="taskgraph-source"][content="none"]') !== null;

const nextNumber = (): number => (source.peek()?.number ?? 0) + 1;

export function startSource(): void {
  openBy(takeSecrets());
  addEventListener("hashchange", () => {
    const secrets = takeSecrets(); // a link that is opened in the same tab loads nothing anew
    if (Object.keys(secrets).length > 0) openBy(secrets);
  });
}

function openBy(secrets: Secrets): void {
  wanted.value = "";
  if (secrets.token !== undefined) sessionStorage.setItem(TOKEN, secrets.token);
  const { at, sas, blobs = "", add = "", live = "" } = secrets;
  if (at !== undefined && sas !== undefined) {
    sessionStorage.setItem(TABLE, JSON.stringify([at, sas, blobs, add, live]));
  }
  source.value = (secrets.token === undefined && overTable()) || overServer();
}

/** null where there is none. */
const overServer = (): Source | null => (isAlone() ? null : overApi(nextNumber()));

/** The table that a link named, null where none did, or what it named is no address. */
function overTable(): Source | null {
  try {
    const [table, sas = "", blobs, add = "", live = ""] = JSON.parse(sessionStorage.getItem(TABLE) ?? "[]") as string[];
    if (!table) return null;
    return alone(new TableRows(table, sas, blobs), { table, sas, add, live });
  } catch {
    sessionStorage.removeItem(TABLE);
    return null;
  }
}

export function signIn(token: string): void {
  sessionStorage.setItem(TOKEN, token);
  wanted.value = "";
  source.value = overApi(nextNumber());
}

export function signOut(): void {
  sessionStorage.removeItem(TOKEN);
  sessionStorage.removeItem(TABLE);
  source.value = overServer();
}

export function isSignedIn(): boolean {
  return sessionStorage.getItem(TOKEN) !== null || sessionStorage.getItem(TABLE) !== null;
}

export function showArchive(rows: Rows, archive: Blob): void {
  wanted.value = "";
  source.value = alone(rows, { archive });
}

/** Note a refusal, so that the page asks for a token; gives the trouble back. */
export function noted(trouble: unknown): unknown {
  if (trouble instanceof Trouble && trouble.problem.status === 401) {
    wanted.value = trouble.problem.code === "no-token" ? "This server opens by a token." : trouble.message;
  }
  return trouble;
}

async function watched<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (trouble) {
    throw noted(trouble);
  }
}

/** Read something of the present source. */
export function read<T>(how: (rows: Rows) => Promise<T>): Promise<T> {
  return watched(how(source.value!.rows));
}

/** Ask the API for what it judges, or have it change something. Throws `Trouble` where there is none. */
export async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  const { judge } = source.value!;
  if (!judge) throw lacking("judge");
  return (await watched(judge.ask(method, path, body))) as T;
}

/** Ask the server for what it alone works out, within so many seconds. Throws `Trouble` where there is none. */
export async function askServer<T>(address: string, seconds: number): Promise<T> {
  const { api } = source.value!;
  if (!api) throw lacking("api");
  return (await watched(api.ask("GET", address, undefined, undefined, seconds))) as T;
}

/** Whether what judges is there: a server, or Python in this tab, which is loaded when it is asked first. */
export function judges(): boolean {
  return Boolean(source.value?.api) || (Boolean(source.value?.judge) && loaded.value);
}

/** What a view must have beside the rows of one graph. */
export type Needs = "graphs" | "judge" | "api";

export function has(needs: Needs | undefined): boolean {
  const { api, judge, rows } = source.value ?? {};
  if (!needs || api) return true;
  return needs === "judge" ? Boolean(judge) : needs === "graphs" && rows !== undefined && !rows.graph;
}

/** What is said in place of a view that the present source cannot fill. */
export function lacking(needs: Needs | undefined): Trouble {
  if (needs === "judge") {
    const words = "This page is one file, and loads nothing: it shows rows as they are, and works nothing out.";
    return new Trouble("missing", words, "Open an archive of the graph on another page: taskgraph archive ID.");
  }
  if (needs === "api") {
    const words = "A server works this out, and none stands behind this page.";
    return new Trouble("missing", words, "Open the page of a server over the same store: taskgraph ui, serve --http.");
  }
  return new Trouble("missing", "This has the rows of one graph, and nothing of a store.", "Open the whole store.");
}

/** A path of the API, its parts encoded. */
export function path(...parts: readonly (string | number)[]): string {
  return `/${parts.map((each) => encodeURIComponent(each)).join("/")}`;
}
