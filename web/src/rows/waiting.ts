/** Waiting: for a time, and while the page is not seen. */

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
