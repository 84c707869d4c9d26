// A worker in Node, without packages, that runs commands: API=… TOKEN=… TARGET=… SLOTS=… node worker.mjs
import { spawn } from "node:child_process";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
const { API = "http://127.0.0.1:8080/api/v1", TOKEN = "none", TARGET = "default", SLOTS = "2", LEASE = "60" } = process.env;
const { WORKER = `${hostname()}-${process.pid}` } = process.env;
const running = new Set(), stop = new AbortController();

// The answer; null where the claim is another's by now. Without one the same is sent again: it is answered as the first.
async function ask(method, path, body, signal) {
  for (let pause = 200; ; pause = Math.min(pause * 2, 5000)) {
    try {
      const answer = await fetch(API + path, { method, body, signal, headers: { authorization: `Bearer ${TOKEN}` } });
      const json = await answer.json();
      if (answer.ok) return json;
      if (json.code === "stale-claim" || (method === "PUT" && answer.status < 500)) return null;
      console.error(path, json.detail);
      if (answer.status < 429 && answer.status !== 409) process.exit(2);
    } catch (error) {
      if (signal?.aborted) return { tasks: [] };
      console.error(path, error.cause?.code ?? error.message);
    }
    await sleep(pause);
  }
}

async function run({ claim, leaseUntil, definition }) {
  const end = (verb, body) => ask("POST", `/runs/${claim}:${verb}`, JSON.stringify(body));
  const { command: [program, ...given] = [], env, cwd } = definition.payload ?? {};
  if (!program) return end("fail", { end: "exception", reason: "the payload has no command" });
  const child = spawn(program, given, { cwd, env: { ...process.env, ...env }, detached: true });
  const log = [], one = { kill: (why) => { one.why ??= why; if (child.pid) try { process.kill(-child.pid, "SIGKILL"); } catch {} } };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => log.push(piece));
  running.add(one);
  let until = Date.parse(leaseUntil), renewing = false, sent = 0, uploaded = Promise.resolve();
  const upload = () => uploaded = uploaded.then(async () => {
    const rest = Buffer.concat(log.splice(0));
    if (rest.length && await ask("PUT", `/runs/${claim}/log?offset=${sent}`, rest)) sent += rest.length;
  });
  const beat = setInterval(async () => {
    if (Date.now() > until) return one.kill("lost"); // another worker may have it from here on
    if (renewing || until - Date.now() > LEASE * 667) return;
    renewing = true;
    const [renewed] = await Promise.all([end("renew", {}), upload()]);
    if (!renewed || renewed.cancel) return one.kill(renewed ? "cancelled" : "lost");
    [until, renewing] = [Date.parse(renewed.leaseUntil), false];
  }, 200);
  const code = await new Promise((done) => child.on("error", (error) => done(error.message)).on("close", done));
  clearInterval(beat);
  running.delete(one);
  if (one.why !== "lost") await upload();
  if (one.why) return one.why === "lost" || end("hand-back", { reason: one.why });
  return code === 0 ? end("complete", {}) : end("fail", { reason: `exit code ${code}`, exitCode: Number(code) || 127 });
}
process.on("SIGTERM", () => { stop.abort(); for (const one of running) one.kill("stopped"); });
for (let slot = 0; slot < SLOTS; slot++) (async () => {
  const wanted = JSON.stringify({ worker: `${WORKER}.${slot}`, wait: 20, leaseSeconds: Number(LEASE) });
  const claim = () => ask("POST", `/targets/${TARGET}:claim`, wanted, stop.signal);
  while (!stop.signal.aborted) for (const task of (await claim()).tasks) await run(task);
})();
