import assert from "node:assert/strict";
import { test } from "node:test";
import { pause, visible } from "../src/rows/waiting.ts";

class Page extends EventTarget {
  hidden = true;

  show(): void {
    this.hidden = false;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

const globals = globalThis as { document?: unknown };

test("a pause ends after its time, and with its signal", async () => {
  await pause(0.001);
  const stop = new AbortController();
  const waiting = pause(60, stop.signal);
  stop.abort();
  await assert.rejects(waiting, { name: "AbortError" });
  await assert.rejects(pause(60, stop.signal), { name: "AbortError" });
});

test("a hidden page waits until it is seen", async () => {
  const page = new Page();
  globals.document = page;
  try {
    let seen = false;
    const waiting = visible(new AbortController().signal).then(() => (seen = true));
    await pause(0.01);
    assert.equal(seen, false);
    page.show();
    await waiting;
    await visible(new AbortController().signal);
    page.hidden = true;
    const stop = new AbortController();
    const stopped = visible(stop.signal);
    stop.abort();
    await assert.rejects(stopped, { name: "AbortError" });
  } finally {
    delete globals.document;
  }
});
