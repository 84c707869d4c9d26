/**
 * The project's own Python, by Pyodide, in a worker of the page: its HTTP API over what the page reads, where no server
 * stands behind it (taskgraph/interfaces/web/tab.py). Loaded when something is to be judged or planned first.
 */

import { loadPyodide } from "pyodide";
import createModule from "pyodide/pyodide.asm.mjs";

import { pause } from "./rows/waiting.ts";

/** Set by build.mjs: the names of files beside this one, and how many bytes they have. */
declare const WASM: string;
declare const STDLIB: string;
declare const FILES_BYTES: number;
/** Made of the package that serves or deploys the page, so that it is always of the same version. */
const PACKAGES = "taskgraph.zip";
const SITE_PACKAGES = "/lib/python3.14/site-packages";
const TRIES = 4;

/** What is judged: rows by a link (see `Link` in linked.py), or an archive. */
export type Opening =
  | { readonly table: string; readonly sas: string; readonly add: string; readonly live: string }
  | { readonly archive: Blob };

/** A question and its answer have the same number. source: of what is asked; opening: of a source that is new. */
export interface Question {
  readonly ask: number;
  readonly source: number;
  readonly opening: Opening;
  readonly method: string;
  readonly path: string;
  readonly body: string;
}

/** loaded, of: bytes of what is loaded first. */
export type Reply =
  | { readonly loaded: number; readonly of: number }
  | { readonly ask: number; readonly answer: string }
  | { readonly ask: number; readonly failed: string };

interface Tab {
  answer(method: string, path: string, body: string): Promise<string>;
}

interface Module {
  over_table(ask: typeof exchange, table: string, sas: string, add: string, live: string): Promise<Tab>;
  over_archive(data: Uint8Array): Promise<Tab>;
}

const asFetched = self.fetch.bind(self);
const reply = (said: Reply): void => self.postMessage(said);
let loaded = 0;
let total = FILES_BYTES;

/** The answer with its bytes counted. */
function counted(answer: Response, type: string, unpack = false): Response {
  if (!answer.ok || !answer.body) throw new Error(`${answer.url} answers ${answer.status}`);
  const counting = new TransformStream<Uint8Array, Uint8Array>({
    transform(piece, controller) {
      loaded += piece.length;
      reply({ loaded, of: total });
      controller.enqueue(piece);
    },
  });
  const bytes = answer.body.pipeThrough(counting);
  const unpacking = new DecompressionStream("gzip") as ReadableWritablePair<Uint8Array, Uint8Array>;
  const whole = unpack ? bytes.pipeThrough(unpacking) : bytes;
  return new Response(whole, { headers: { "Content-Type": type } });
}

const beside = (name: string): string => new URL(name, import.meta.url).href;

/** Pyodide names its files itself; here they have their digest in the name, and that of the machine code is packed. */
self.fetch = async (input, init) => {
  const name = (input instanceof Request ? input.url : String(input)).split("/").pop();
  if (name === "pyodide.asm.wasm") return counted(await asFetched(beside(WASM)), "application/wasm", true);
  if (name === "python_stdlib.zip") return counted(await asFetched(beside(STDLIB)), "application/zip");
  return asFetched(input, init);
};

/** Sends a request of Python's: reading again after what passes, anything else once. Status 0: no answer came. */
async function exchange(method: string, address: string, body: string) {
  for (let tried = 1; ; tried++) {
    const last = tried === TRIES || method !== "GET";
    try {
      const answer = await asFetched(address, {
        method,
        headers: {
          Accept: "application/json;odata=minimalmetadata",
          ...(body ? { "Content-Type": "application/json" } : {}),
        },
        ...(body ? { body } : {}),
        credentials: "omit",
        redirect: "error",
      });
      if (answer.status < 500 || last) {
        const head = (name: string): string => answer.headers.get(`x-ms-continuation-${name}`) ?? "";
        const place = [head("NextPartitionKey"), head("NextRowKey")];
        const next = place.some(Boolean) ? JSON.stringify(place) : "";
        return { status: answer.status, next, text: await answer.text() };
      }
    } catch {
      if (last) return { status: 0, next: "", text: "" };
    }
    await pause(0.2 * 2 ** tried);
  }
}

async function load(): Promise<Module> {
  const info = { arch: "wasm32", platform: "emscripten_5_0_3", abi_version: "2026_0", python: "3.14.2" };
  const packages = asFetched(beside(PACKAGES), { cache: "no-cache" });
  const python = await loadPyodide({
    indexURL: beside("."),
    createPyodideModule: createModule,
    lockFileContents: { info, packages: {} }, // nothing is loaded from elsewhere
  } as Parameters<typeof loadPyodide>[0]);
  const found = await packages;
  total += Number(found.headers.get("Content-Length"));
  const zip = counted(found, "application/zip");
  python.unpackArchive(await zip.arrayBuffer(), "zip", { extractDir: SITE_PACKAGES });
  return python.pyimport("taskgraph.interfaces.web.tab") as Module;
}

let module: Promise<Module> | undefined;
const tabs = new Map<number, Promise<Tab>>();

async function opened(opening: Opening): Promise<Tab> {
  const python = await (module ??= load());
  if ("archive" in opening) return python.over_archive(new Uint8Array(await opening.archive.arrayBuffer()));
  return python.over_table(exchange, opening.table, opening.sas, opening.add, opening.live);
}

self.addEventListener("message", ({ data }: MessageEvent<Question>) => {
  const { ask, source, opening, method, path, body } = data;
  if (!tabs.has(source)) tabs.set(source, opened(opening));
  tabs
    .get(source)!
    .then((tab) => tab.answer(method, path, body))
    .then(
      (answer) => reply({ ask, answer }),
      (error: unknown) => reply({ ask, failed: String(error) }),
    );
});
