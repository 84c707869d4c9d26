// What the clients of the old scheduler for Node do, unmodified: that of 2017, and the first one, of 2014.
//
//     node tests/taskcluster/node_client.js FOLDER ADDRESS [NAME TOKEN]
//
// FOLDER has one of them installed. Prints one line of JSON for each call, as old_client.py does.
"use strict";
const assert = require("node:assert");
const path = require("node:path");

const [folder, address, name, token] = process.argv.slice(2);
const client = require(path.join(folder, "node_modules", "taskcluster-client"));
const { version } = require(path.join(folder, "node_modules", "taskcluster-client", "package.json"));
const credentials = name && { clientId: name, accessToken: token };

const METADATA = { name: "Example", description: "A test", owner: "a@b.example", source: "http://example.com/" };
const WORKER = { workerGroup: "group", workerId: "worker" };
const until = (minutes) => new Date(Date.now() + minutes * 60000).toJSON();
const task = (more) => ({
  ...{ provisionerId: "dummy-test-provisioner", workerType: "node", created: until(0), deadline: until(25) },
  ...{ payload: {}, metadata: METADATA, ...more },
});

function recorded(kind, inner) {
  const call = (method) => async (...args) => {
    const line = { scenario: version, class: kind, method, arguments: args };
    try {
      const answer = await inner[method](...args);
      console.log(JSON.stringify({ ...line, answer }));
      return answer;
    } catch (error) {
      console.log(JSON.stringify({ ...line, status: error.statusCode ?? error.status ?? 0, error: String(error.message) }));
      throw error;
    }
  };
  return new Proxy({}, { get: (_, method) => call(method) });
}

async function of2017() {
  const options = { baseUrl: `${address}/v1`, retries: 0, ...(credentials && { credentials }) };
  const scheduler = recorded("Scheduler", new client.Scheduler(options));
  const queue = recorded("Queue", new client.Queue(options));
  const [graph, a, b] = [client.slugid(), client.slugid(), client.slugid()];
  const node = (taskId, ...requires) => ({ taskId, requires, task: task() });
  const body = { tasks: [node(a)], metadata: METADATA, scopes: ["queue:define-task:dummy-test-provisioner/node"], tags: { k: "v" } };
  for (let again = 0; again < 2; again++) {
    assert.equal((await scheduler.createTaskGraph(graph, body)).status.taskGraphId, graph);
  }
  assert.equal((await scheduler.extendTaskGraph(graph, { tasks: [node(b, a)] })).status.state, "running");
  assert.equal((await scheduler.status(graph)).status.state, "running");
  assert.deepEqual((await scheduler.info(graph)).tags, { k: "v" });
  const byId = Object.fromEntries((await scheduler.inspect(graph)).tasks.map((each) => [each.taskId, each]));
  assert.deepEqual(byId[b].requiresLeft, [a]);
  assert.equal((await scheduler.inspectTask(graph, a)).state, "scheduled");
  await assert.rejects(scheduler.status(client.slugid()), (error) => error.statusCode === 404);
  await assert.rejects(scheduler.createTaskGraph(graph, { ...body, tags: {} }), (error) => error.statusCode === 409);
  for (const taskId of [a, b]) {
    await queue.claimTask(taskId, 0, WORKER);
    await queue.reportCompleted(taskId, 0);
  }
  let state = "running";
  for (let tries = 0; tries < 200 && state === "running"; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    state = (await scheduler.status(graph)).status.state;
  }
  assert.equal(state, "finished");
}

async function of2014() {
  client.config({ scheduler: address });
  client.authenticate(credentials || null);
  const scheduler = recorded("scheduler", client.scheduler);
  const old = { version: "0.2.0", routing: "", timeout: 600, retries: 5, priority: 5, tags: {} };
  const second = task({ ...old, payload: { of: "{{taskId:print-once}}", at: "{{revision}}" } });
  const made = await scheduler.createTaskGraph({
    version: "0.2.0",
    params: { revision: "1f3a9c" },
    routing: "nightly",
    tasks: {
      "print-once": { requires: [], reruns: 1, task: task(old) },
      "print-twice": { requires: ["print-once"], reruns: 0, task: second },
    },
    metadata: METADATA,
    tags: { k: "v" },
  });
  const graph = made.status.taskGraphId;
  assert.deepEqual([made.status.state, made.status.routing], ["running", "nightly"]);
  assert.equal((await scheduler.getTaskGraphStatus(graph)).status.state, "running");
  assert.deepEqual((await scheduler.getTaskGraphInfo(graph)).tags, { k: "v" });
  const found = await scheduler.inspectTaskGraph(graph);
  assert.deepEqual(found.tasks["print-twice"].requires, [found.tasks["print-once"].taskId]);
  assert.deepEqual(found.params, { revision: "1f3a9c" });
  await assert.rejects(scheduler.getTaskGraphStatus("none"));
  await assert.rejects(scheduler.requestTableAccess());
}

(version === "0.4.3" ? of2014() : of2017()).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
