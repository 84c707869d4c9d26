/** Waiting: for a time, for an answer, and while the page is not seen. */

/** Rejects as soon as `signal` is aborted. */
export function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** More than a server may take, or wait for news: a connection may be dead without an end. */
const ANSWER_SECONDS = 60;

/** An answer with all of its body. Throws what `fetch` throws, also where the answer takes too long. */
export async function answered(address: string, how: RequestInit, seconds = ANSWER_SECONDS): Promise<Response> {
  const late = AbortSignal.timeout(seconds * 1000);
  const signal = how.signal ? AbortSignal.any([how.signal, late]) : late;
  const answer = await fetch(address, { ...how, signal, credentials: "omit", redirect: "error" });
  const body = await answer.arrayBuffer();
  return new Response(body.byteLength ? body : null, answer);
}

const LOOK_SECONDS = 1;
const LOOK_SECONDS_MAX = 20;
const LOOK_GROWTH = 1.3;

/** Looks until something is found, ever more rarely, and not while the page is hidden. Rejects with `signal`. */
export async function found<T>(look: () => Promise<readonly T[]>, signal: AbortSignal): Promise<readonly T[]> {
  for (let seconds = LOOK_SECONDS; ; seconds = Math.min(LOOK_SECONDS_MAX, seconds * LOOK_GROWTH)) {
    await pause(seconds, signal);
    await visible(signal);
    const seen = await look();
    if (seen.length) return seen;
  }
}

const WAITS_MAX = 3;

/**
 * Does what holds a connection open, with true; with false where other tabs hold enough of them: a browser has six to a
 * server for all of its tabs.
 */
export async function holding<T>(work: (held: boolean) => Promise<T>): Promise<T> {
  const locks = (globalThis.navigator as Navigator | undefined)?.locks as LockManager | undefined;
  if (!locks) return work(true);
  for (let number = 0; number < WAITS_MAX; number++) {
    const free = { ifAvailable: true };
    const done = await locks.request(`taskgraph-wait-${number}`, free, async (lock) => {
      return lock && { value: await work(true) };
    });
    if (done) return done.value;
  }
  return work(false);
}

/** Resolves when the page is seen: at once, but for a hidden tab. Rejects as soon as `signal` is aborted. */
export function visible(signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const page = globalThis.document as Document | undefined;
    if (!page?.hidden) return resolve();
    const done = (): void => {
      if (!signal.aborted && page.hidden) return;
      page.removeEventListener("visibilitychange", done);
      signal.removeEventListener("abort", done);
      if (signal.aborted) reject(signal.reason as Error);
      else resolve();
    };
    page.addEventListener("visibilitychange", done);
    signal.addEventListener("abort", done);
  });
}
