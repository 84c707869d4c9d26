/** Prints what the page makes of a store: for tests/web. Called with a JSON object: `api`, `token`, `graph`, `task`. */

import { graphs } from "../src/model/list.ts";
import { load } from "../src/model/load.ts";
import { overview } from "../src/model/overview.ts";
import { ApiRows } from "../src/rows/api.ts";
import { Trouble } from "../src/rows/port.ts";

interface Asked {
  readonly api: string;
  readonly token: string;
  readonly graph: string;
  readonly task: string;
}

const { api, token, graph, task } = JSON.parse(process.argv[2] as string) as Asked;
const rows = new ApiRows(api, token);
let requests = 0;
const real = fetch;
globalThis.fetch = (...given: Parameters<typeof fetch>) => {
  requests++;
  return real(...given);
};

async function trouble(asked: Promise<unknown>): Promise<unknown> {
  const found = await asked.catch((error: unknown) => error);
  if (!(found instanceof Trouble)) return `no trouble: ${String(found)}`;
  return { reason: found.reason, message: found.message, remedy: found.remedy, code: found.problem.code };
}

const looked = await overview(rows, Date.now());
const first = requests;
await overview(rows, Date.now());
const again = requests - first;
const listed: object[] = [];
for await (const page of graphs(rows, { match: "G" })) listed.push(...page.map((each) => ({ ...each, header: null })));
const [id = ""] = (await load(rows, graph, () => undefined)).ids.filter((each) => each === task);
const read = async (start: number, length: number, name = "run.log"): Promise<unknown> => {
  const found = await rows.file(graph, id, 0, name, start, length);
  return [new TextDecoder().decode(found.bytes), found.start, found.total];
};
const files = [await read(0, 5), await read(-4, 100), await read(3, 100), await read(99, 5)];
const both = await Promise.all([rows.get(graph, ["task-graph"]), rows.get(graph, ["none"])]);
process.stdout.write(
  JSON.stringify({
    overview: looked,
    first,
    again,
    listed,
    files: [...files, await read(0, 99, "result.json")],
    troubles: {
      graph: await trouble(load(rows, "none", () => undefined)),
      file: await trouble(rows.file(graph, id, 0, "none.txt", 0, 1)),
      partition: await trouble(rows.get("index:tokens", ["a"])),
      token: await trouble(new ApiRows(api, "wrong").get("index:live", ["a"])),
      away: await trouble(new ApiRows("http://127.0.0.1:1", "").page(graph, {})),
      page: await trouble(rows.page(graph, { next: "strange" })),
      plan: await trouble(rows.ask("POST", `/graphs/${graph}/changes`, { change: "rerun", failed: true })),
    },
    several: both.flat().map((row) => row?.key),
  }),
);
