/** The address, `#/g/nightly/tasks?state=failed`: all the state that the page has. What is secret never stays in it. */

import { signal } from "@preact/signals";

export interface Route {
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

export type Query = Readonly<Record<string, string | number | boolean | null | undefined>>;

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#?\/?/, "");
  const split = text.indexOf("?");
  const path = split < 0 ? text : text.slice(0, split);
  const query = split < 0 ? "" : text.slice(split + 1);
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function withValues(query: URLSearchParams, values: Query): URLSearchParams {
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "" || value === false) query.delete(name);
    else query.set(name, value === true ? "1" : String(value));
  }
  return query;
}

/** The address of a place. What is empty, null or false is left out of its query. */
export function href(path: readonly (string | number)[], values: Query = {}): string {
  const query = withValues(new URLSearchParams(), values).toString();
  return `#/${path.map((each) => encodeURIComponent(each)).join("/")}${query ? `?${query}` : ""}`;
}

export const route = signal<Route>({ path: [], query: new URLSearchParams() });

function read(): void {
  route.value = parse(location.hash);
}

export function go(address: string, replace = false): void {
  if (address === location.hash) return;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  read();
}

/** The present address with other values in its query. */
export function here(values: Query): string {
  const { path, query } = route.peek();
  const changed = withValues(new URLSearchParams(query), values).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${changed ? `?${changed}` : ""}`;
}

/** Change the query of the present address, as typing into a filter does: no step for the button “back”. */
export function set(values: Query): void {
  go(here(values), true);
}

const SECRETS = ["token", "at", "sas", "blobs", "add", "live"] as const;
export type Secrets = Partial<Record<(typeof SECRETS)[number], string>>;

/** Take what opens a source out of the address, also from the history of the browser. */
export function takeSecrets(): Secrets {
  const bare = /^#[a-z]+=/.test(location.hash) ? `#/?${location.hash.slice(1)}` : location.hash;
  const { path, query } = parse(bare);
  const found: Secrets = {};
  for (const name of SECRETS) {
    const value = query.get(name);
    if (value !== null) found[name] = value;
    query.delete(name);
  }
  if (Object.keys(found).length > 0) {
    const rest = query.toString();
    history.replaceState(null, "", `#/${path.map(encodeURIComponent).join("/")}${rest ? `?${rest}` : ""}`);
  }
  return found;
}

export function startRouting(): void {
  read();
  addEventListener("hashchange", read);
  addEventListener("popstate", read);
}
