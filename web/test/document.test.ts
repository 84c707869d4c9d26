/** Documents that are written in the page: where values stand, and what is wrong. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Trouble } from "../src/rows/port.ts";
import { lineOf, linesOf, notJson, problemsOf } from "../src/views/document.ts";
import { changeOf } from "../src/views/planned.ts";

const EDIT = `{
  "update": {
    "a/b~c": {"reruns": -2, "requires": [
      "x",
      {"label": "}],\\"", "optional": true}
    ]},
    "é": {}
  },
  "delete": [],
  "reason": "two: [\\n"
}
`;

test("the line of each value is known by its pointer, whatever texts hold", () => {
  const lines = linesOf(EDIT);
  const expected = {
    "/update": 2,
    "/update/a~1b~0c": 3,
    "/update/a~1b~0c/reruns": 3,
    "/update/a~1b~0c/requires/0": 4,
    "/update/a~1b~0c/requires/1": 5,
    "/update/a~1b~0c/requires/1/optional": 5,
    "/update/é": 7,
    "/delete": 9,
    "/reason": 10,
  };
  for (const [pointer, line] of Object.entries(expected)) assert.equal(lines.get(pointer), line, pointer);
  assert.equal(lineOf(lines, "/update/é/task/payload"), 7, "what is missing stands where it would");
  assert.equal(lineOf(lines, "/tasks"), 1);
});

test("of a text that is no JSON the line is named at which it ends to be", () => {
  assert.equal(notJson(EDIT), null);
  assert.equal(notJson('{\n  "a": 1,\n  b: 2\n}')?.line, 3);
  assert.equal(notJson('{\n  "a": 1,\n')?.line, 3);
  assert.equal(notJson("[]")?.message, "The document is no object.");
});

test("problems of the API stand at the lines of the text", () => {
  const problems = [{ pointer: "/update/é", message: "It is wrong.", remedy: "Mend it.", line: 1 }];
  const trouble = new Trouble("wrong", "edit: 1 problem", "", { problems });
  assert.deepEqual(problemsOf(trouble, EDIT), [{ ...problems[0], line: 7 }]);
  assert.deepEqual(problemsOf(new Error("other"), EDIT), []);
});

test("an address names an edit or extension only with its document", () => {
  const of = (kind: string, document: string): unknown => changeOf(new URLSearchParams({ change: kind }), document);
  assert.equal(of("edit", ""), null);
  assert.equal(of("extend", "{"), null);
  assert.deepEqual(of("edit", '{"delete": ["a"]}'), { change: "edit", edit: { delete: ["a"] } });
  assert.deepEqual(of("extend", '{"tasks": {}}'), { change: "extend", extension: { tasks: {} } });
});
