import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { answered, pause, visible } from "../src/rows/waiting.ts";

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

test("an answer is whole, or it is none", async () => {
  const parts = ["a", "b"];
  const server = createServer((asked, answer) => {
    answer.writeHead(asked.url === "/empty" ? 204 : 206, { "Content-Range": "bytes 0-1/2" });
    if (asked.url === "/cut") return void answer.write("a", () => answer.destroy());
    for (const part of asked.url === "/empty" ? [] : parts) answer.write(part);
    answer.end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const whole = await answered(address, {});
    assert.deepEqual([whole.status, whole.headers.get("Content-Range")], [206, "bytes 0-1/2"]);
    assert.equal(await whole.text(), "ab");
    assert.equal((await answered(`${address}/empty`, {})).status, 204);
    await assert.rejects(answered(`${address}/cut`, {}), TypeError);
    const stop = AbortSignal.abort();
    await assert.rejects(answered(address, { signal: stop }), { name: "AbortError" });
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
