/** Reading all pages of a range. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { pages, type Page, type Range, type Rows } from "../src/rows/port.ts";

test("pages follow each other until there is no next, with the same range", async () => {
  const asked: Range[] = [];
  const answers: Record<string, Page> = {
    "": { rows: [{ key: "a", columns: {} }], next: "b" },
    b: { rows: [{ key: "b", columns: {} }], next: "" },
  };
  const rows: Pick<Rows, "page"> = {
    page(_partition, range) {
      asked.push(range);
      return Promise.resolve(answers[range.next ?? ""] as Page);
    },
  };
  const read: string[] = [];
  for await (const some of pages(rows as Rows, "g", { start: "a", limit: 1 })) {
    read.push(...some.map((each) => each.key));
  }
  assert.deepEqual(read, ["a", "b"]);
  assert.deepEqual(asked, [{ start: "a", limit: 1 }, { start: "a", limit: 1, next: "b" }]);
});
