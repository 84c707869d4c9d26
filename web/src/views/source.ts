/** The source that the page reads now, and what opens it: a token is kept for this tab alone. */

import { signal } from "@preact/signals";

import { ApiRows } from "../rows/api.ts";
import { type Rows, Trouble } from "../rows/port.ts";
import { TableRows } from "../rows/tables.ts";
import { type Secrets, takeSecrets } from "../route.ts";

export interface Source {
  readonly rows: Rows;
  /** What judges and changes: of the HTTP API alone. */
  readonly api: ApiRows | null;
  /** Grows with each token or source, so that what was refused is asked for again. */
  readonly number: number;
}

const TOKEN = "taskgraph-token";
const TABLE = "taskgraph-table";

function overApi(number: number): Source {
  const api = new ApiRows("", sessionStorage.getItem(TOKEN) ?? "");
  return { rows: api, api, number };
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
  const { at, sas, blobs } = secrets;
  if (at !== undefined && sas !== undefined) sessionStorage.setItem(TABLE, JSON.stringify([at, sas, blobs ?? ""]));
  source.value = (secrets.token === undefined && overTable()) || overServer();
}

/** null where there is none. */
const overServer = (): Source | null => (isAlone() ? null : overApi(nextNumber()));

/** The table that a link named, null where none did, or what it named is no address. */
function overTable(): Source | null {
  try {
    const [address, signature, files] = JSON.parse(sessionStorage.getItem(TABLE) ?? "[]") as string[];
    if (!address) return null;
    return { rows: new TableRows(address, signature ?? "", files ?? ""), api: null, number: nextNumber() };
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

export function showRows(rows: Rows): void {
  wanted.value = "";
  source.value = { rows, api: null, number: nextNumber() };
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

/** Ask the API for what it judges, or have it change something. Throws `Trouble` where the page has no API. */
export async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  const { api } = source.value!;
  if (!api) throw needsServer();
  return (await watched(api.ask(method, path, body))) as T;
}

/** What is said in place of an answer that the API alone gives. */
export function needsServer(): Trouble {
  const words = "A server works this out, and none stands behind this page: it shows rows as they are.";
  return new Trouble("missing", words, "Open the page of a server over the same store: taskgraph ui, or serve --http.");
}

/** What a view must have beside the rows of one graph. */
export type Needs = "graphs" | "api";

export function has(needs: Needs | undefined): boolean {
  const { api, rows } = source.value ?? {};
  return !needs || Boolean(api) || (needs === "graphs" && rows !== undefined && !rows.graph);
}

/** What is said in place of a view that the present source cannot fill. */
export function lacking(needs: Needs | undefined): Trouble {
  if (needs === "api") return needsServer();
  return new Trouble("missing", "This has the rows of one graph, and nothing of a store.", "Open the whole store.");
}

/** A path of the API, its parts encoded. */
export function path(...parts: readonly (string | number)[]): string {
  return `/${parts.map((each) => encodeURIComponent(each)).join("/")}`;
}
