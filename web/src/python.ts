/** What the HTTP API answers, where no server is: worked out by Python in this tab (python_worker.ts). */

import { signal } from "@preact/signals";

import { pythonWorker } from "./own_worker.ts";
import type { Opening, Question, Reply } from "./python_worker.ts";
import { refused } from "./rows/api.ts";
import { Trouble } from "./rows/port.ts";

/** What is being loaded, in words; "" before, and when all is there. */
export const loading = signal("");

/** Whether Python is there: it has answered. */
export const loaded = signal(false);

interface Waiting {
  readonly found: (answer: string) => void;
  readonly failed: (error: unknown) => void;
}

let worker: Worker | undefined;
let last = 0;
const waiting = new Map<number, Waiting>();

const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(1);

function started(): Worker {
  const made = pythonWorker();
  loading.value = "Loading Python, which works this out in this tab …";
  made.addEventListener("message", ({ data }: MessageEvent<Reply>) => {
    if ("loaded" in data) {
      const part = `${megabytes(data.loaded)} of ${megabytes(data.of)} MB`;
      loading.value =
        data.loaded < data.of
          ? `Loading Python, which works this out in this tab: ${part} …`
          : "Python starts in this tab …";
      return;
    }
    loading.value = "";
    loaded.value = true;
    const each = waiting.get(data.ask);
    waiting.delete(data.ask);
    if ("answer" in data) each?.found(data.answer);
    else each?.failed(broken(data.failed));
  });
  made.addEventListener("error", (event) => {
    for (const each of waiting.values()) each.failed(broken(event.message));
    waiting.clear();
    made.terminate();
    worker = undefined;
    loaded.value = false;
    loading.value = "";
  });
  return made;
}

function broken(words: string): Trouble {
  const remedy = "Open the page of a server over the same store: taskgraph ui, or serve --http.";
  const last = words.trim().split("\n").pop() ?? "";
  return new Trouble("wrong", `Python does not run in this tab: ${last.slice(0, 300)}`, remedy);
}

/** The API over one source. source: its number. */
export class TabApi {
  constructor(
    private readonly source: number,
    private readonly opening: Opening,
  ) {}

  /** See `ApiRows.ask`. */
  async ask(method: string, path: string, body?: unknown): Promise<unknown> {
    worker ??= started();
    const ask = ++last;
    const text = body === undefined ? "" : JSON.stringify(body);
    const answer = await new Promise<string>((found, failed) => {
      waiting.set(ask, { found, failed });
      const { source, opening } = this;
      worker!.postMessage({ ask, source, opening, method, path, body: text } satisfies Question);
    });
    const [status, said] = JSON.parse(answer) as [number, string];
    const found: unknown = said ? JSON.parse(said) : null;
    if (status >= 400) throw refused("this tab", status, found as Record<string, unknown>);
    return found;
  }
}
