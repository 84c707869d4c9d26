/** The window on a log, where lines are longer than a piece of it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { LogWindow, type Read } from "../src/views/logtext.ts";

function reading(text: string): { read: Read; asked: number[] } {
  const whole = new TextEncoder().encode(text);
  const asked: number[] = [];
  const read: Read = (start, length) => {
    const from = start < 0 ? Math.max(0, whole.length + start) : start;
    asked.push(from);
    return Promise.resolve({ bytes: whole.slice(from, from + length), start: from, total: whole.length });
  };
  return { read, asked };
}

for (const text of [`${"x".repeat(1_000_000)}\n`, `first\n${"x".repeat(600_000)}\nlast\n`, "x".repeat(600_000)]) {
  test(`a log of ${text.length} bytes with a long line is read to its beginning`, async () => {
    const { read, asked } = reading(text);
    const window = new LogWindow(read);
    await window.atEnd();
    while (window.start > 0 && asked.length < 20) await window.earlier();
    assert.equal(window.start, 0);
    assert.equal(new Set(asked).size, asked.length, "no piece is read twice");
    assert.equal(window.lines.map((each) => each.text).join(""), text.replaceAll("\n", ""));
  });
}
