// Follows the journal of a graph to its end, in Node without packages: API=… TOKEN=… node follow.mjs ID
// Exit code: 0 the graph finished; 1 it is blocked, or was cancelled; 2 it cannot be followed.
import { setTimeout as sleep } from "node:timers/promises";
const { API = "http://127.0.0.1:8080/api/v1", TOKEN = "none" } = process.env;
const graph = `${API}/graphs/${encodeURIComponent(process.argv[2])}`;
let last = "0"; // the id of the last event: there the next stream begins, if one breaks off

async function ask(url, headers) {
  const answer = await fetch(url, { headers: { authorization: `Bearer ${TOKEN}`, ...headers } });
  if (answer.ok) return answer;
  const { detail } = await answer.json();
  if (answer.status >= 500 || answer.status === 429) throw new Error(detail);
  console.error(detail);
  process.exit(2);
}

async function* events() {
  const answer = await ask(`${graph}/events`, { accept: "text/event-stream", "last-event-id": last });
  let rest = "";
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + piece).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      yield Object.fromEntries(block.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 2)]));
    }
  }
}

for (let pause = 200; ; pause = Math.min(pause * 2, 5000)) {
  try {
    for await (const { id, event, data } of events()) {
      if (event === "error") throw new Error(JSON.parse(data).detail);
      if (id) {
        [last, pause] = [id, 200];
        const { time, label = "", reason = "" } = JSON.parse(data);
        console.log(time, event, label, reason);
      }
      if (event !== "end" && event !== "graph-blocked") continue;
      const { state } = await (await ask(graph)).json();
      if (event === "end" || state === "blocked") process.exit(state === "finished" ? 0 : 1); // blocked: it may be long ago
    }
  } catch (error) {
    console.error(error.cause?.code ?? error.message);
  }
  await sleep(pause);
}
