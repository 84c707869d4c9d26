"""What the client of the old scheduler does, run by the Python of `.venv-taskcluster`, where that client is unmodified.

    .venv-taskcluster/bin/python tests/taskcluster/old_client.py ADDRESS/v1 SCENARIO… [--sign NAME TOKEN [NAME TOKEN]]

Prints one line of JSON for each call: scenario, class, method, arguments, and the answer or the error. The scenarios
are those that the old scheduler's own tests played: create (S), idempotency (I), extend (X), inspect (N), reruns (R).
"""

import base64
import datetime
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

warnings.simplefilter("ignore")  # Python finds old forms of escapes in the client
if not hasattr(base64, "encodestring"):  # the client's one need that Python has dropped (in 3.9): to sign
    base64.encodestring = base64.encodebytes  # type: ignore[attr-defined]
for each in ("CLIENT_ID", "ACCESS_TOKEN", "CERTIFICATE"):
    os.environ.pop("TASKCLUSTER_" + each, None)
os.environ["NO_PROXY"] = "127.0.0.1,localhost"

import slugid  # noqa: E402
import taskcluster  # noqa: E402
from taskcluster.exceptions import TaskclusterAuthFailure, TaskclusterRestFailure  # noqa: E402

PROVISIONER, WORKER_TYPE = "dummy-test-provisioner", "dummy-test-worker"
METADATA = {"name": "Example", "description": "A test", "owner": "a@b.example", "source": "http://example.com/"}
SCOPES = [f"queue:define-task:{PROVISIONER}/{WORKER_TYPE}"]
WORKER = {"workerGroup": "group", "workerId": "worker"}
SECONDS_MAX = 30
SCENARIO = ""


class Recorded:
    """A client whose calls are printed."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            line = {"scenario": SCENARIO, "class": type(self._client).__name__, "method": name, "arguments": arguments}
            try:
                answer = getattr(self._client, name)(*arguments)
            except TaskclusterRestFailure as error:
                print(json.dumps({**line, "status": error.status_code, "error": error.body}, default=str), flush=True)
                raise
            print(json.dumps({**line, "answer": answer}, default=str), flush=True)
            return answer

        return call


class Player:
    """scheduler, queue: clients of the server at `base`. credentials: that each of these signs with, [] for none."""

    def __init__(self, base: str, credentials: list[dict[str, str]]) -> None:
        options = {"baseUrl": base, "maxRetries": 0}
        first, last = ({"credentials": each} for each in (credentials[0], credentials[-1])) if credentials else ({}, {})
        self.base = base
        self.scheduler = Recorded(taskcluster.Scheduler({**options, **first}))
        self.queue = Recorded(taskcluster.Queue({**options, **last}))

    def task(self, **more: Any) -> dict[str, Any]:
        now = datetime.datetime.utcnow()
        return {
            "provisionerId": PROVISIONER,
            "workerType": WORKER_TYPE,
            "created": now,
            "deadline": now + datetime.timedelta(minutes=25),
            "payload": {},
            "metadata": METADATA,
            **more,
        }

    def node(self, task_id: str, *requires: str, **more: Any) -> dict[str, Any]:
        return {"taskId": task_id, "requires": list(requires), "task": self.task(), **more}

    def graph(self, *nodes: Any, **more: Any) -> dict[str, Any]:
        return {"tasks": list(nodes), "metadata": METADATA, "scopes": SCOPES, "tags": {}, **more}

    def refused(self, status: int, call: Callable[[], Any]) -> Any:
        body: Any = None
        try:
            call()
        except TaskclusterRestFailure as error:
            body = {"status": error.status_code, **error.body}
        assert body, f"not {status}"
        assert body["status"] == status, body
        assert body["message"]
        return body

    # -- what the old suite's listeners waited for

    def pending(self, task_id: str) -> bool:
        """Whether the queue has the task for workers: before that it is not scheduled."""
        return bool(self.queue.status(task_id)["status"]["state"] == "pending")

    def wait_until(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + SECONDS_MAX
        while not what():
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.05)

    def wait_pending(self, task_id: str) -> None:
        self.wait_until(lambda: self.pending(task_id))

    def state(self, graph_id: str) -> str:
        return str(self.scheduler.status(graph_id)["status"]["state"])

    def wait_state(self, graph_id: str, state: str) -> None:
        self.wait_until(lambda: self.state(graph_id) == state)

    def complete(self, task_id: str, run: int = 0) -> None:
        self.queue.claimTask(task_id, run, WORKER)
        self.queue.reportCompleted(task_id, run)

    def inspected(self, graph_id: str) -> tuple[Any, dict[str, Any]]:
        found = self.scheduler.inspect(graph_id)
        return found, {each["taskId"]: each for each in found["tasks"]}


def snippet(p: Player) -> None:
    """Each method of the scheduler once, and what it refuses."""
    s, graph_id, (a, b) = p.scheduler, slugid.nice(), sorted([slugid.nice(), slugid.nice()])
    body = p.graph(p.node(a), tags={"k": "v"})
    assert s.ping()["alive"] is True
    for _ in range(2):
        assert s.createTaskGraph(graph_id, body)["status"]["taskGraphId"] == graph_id
    more = {"tasks": [p.node(b, a, reruns=1)]}
    for _ in range(2):
        assert s.extendTaskGraph(graph_id, more)["status"]["state"] == "running"
    assert p.state(graph_id) == "running"
    assert s.info(graph_id)["tags"] == {"k": "v"}
    _, by_id = p.inspected(graph_id)
    assert by_id[a]["state"] == "scheduled"
    assert by_id[b]["requiresLeft"] == [a]
    assert s.inspectTask(graph_id, b)["rerunsLeft"] == 1
    p.refused(404, lambda: s.status(slugid.nice()))
    p.refused(409, lambda: s.createTaskGraph(graph_id, dict(body, tags={"k": "other"})))
    p.refused(400, lambda: s.createTaskGraph(slugid.nice(), {"tasks": []}))


def s1_s2(p: Player) -> None:
    """A graph A, B requires A, with routes and without."""
    for more in ({"routes": []}, {}):
        graph_id, a, b = slugid.nice(), slugid.nice(), slugid.nice()
        done = p.scheduler.createTaskGraph(graph_id, p.graph(p.node(a), p.node(b, a), **more))
        assert done["status"]["taskGraphId"] == graph_id


def s3_s4_s5(p: Player) -> None:
    """No scopes for the tasks; a foreign scheduler; a foreign group."""
    a = slugid.nice()
    for node, scopes in (
        (p.node(a), []),
        (p.node(a, task=p.task(schedulerId="another-scheduler")), SCOPES),
        (p.node(a, task=p.task(taskGroupId=slugid.nice())), SCOPES),
    ):
        body = p.graph(node, scopes=scopes)
        assert p.refused(400, lambda body=body: p.scheduler.createTaskGraph(slugid.nice(), body))["error"]


def s6(p: Player) -> None:
    """A, then B: B waits until A is completed, and the graph until B is."""
    graph_id, a, b = slugid.nice(), slugid.nice(), slugid.nice()
    p.scheduler.createTaskGraph(graph_id, p.graph(p.node(a), p.node(b, a)))
    p.wait_pending(a)
    p.queue.claimTask(a, 0, WORKER)
    time.sleep(0.5)
    assert p.queue.status(b)["status"]["state"] == "unscheduled"
    p.queue.reportCompleted(a, 0)
    p.wait_pending(b)
    p.queue.claimTask(b, 0, WORKER)
    time.sleep(0.5)
    assert p.state(graph_id) == "running"
    p.queue.reportCompleted(b, 0)
    p.wait_state(graph_id, "finished")


def i1(p: Player) -> None:
    """The same graph twice."""
    graph_id, body = slugid.nice(), p.graph(p.node(slugid.nice()))
    assert p.scheduler.createTaskGraph(graph_id, body) == p.scheduler.createTaskGraph(graph_id, body)


def i2(p: Player) -> None:
    """Created twice and extended twice, it runs once: A; B requires A; C requires A and B."""
    graph_id, a, b, c = slugid.nice(), slugid.nice(), slugid.nice(), slugid.nice()
    body, more = p.graph(p.node(a)), {"tasks": [p.node(b, a), p.node(c, a, b)]}
    for _ in range(2):
        p.scheduler.createTaskGraph(graph_id, body)
    for _ in range(2):
        p.scheduler.extendTaskGraph(graph_id, more)
    for task_id, waiting in ((a, [b, c]), (b, [c]), (c, [])):
        p.wait_pending(task_id)
        assert [p.queue.status(each)["status"]["state"] for each in waiting] == ["unscheduled"] * len(waiting)
        assert p.state(graph_id) == "running"
        p.complete(task_id)
    p.wait_state(graph_id, "finished")


def x1(p: Player) -> None:
    """An extended graph keeps its tags."""
    graph_id, a, b = slugid.nice(), slugid.nice(), slugid.nice()
    p.scheduler.createTaskGraph(graph_id, p.graph(p.node(a), tags={"MyTestTag": "MyTestTag"}))
    for number in (1, 2):
        found, _ = p.inspected(graph_id)
        assert (found["status"]["state"], len(found["tasks"])) == ("running", number)
        assert found["tags"]["MyTestTag"] == "MyTestTag"
        if number == 1:
            p.scheduler.extendTaskGraph(graph_id, {"tasks": [p.node(b, a)]})


def x2(p: Player) -> None:
    """Extended twice by the same, it runs to its end."""
    graph_id, a, b = slugid.nice(), slugid.nice(), slugid.nice()
    p.scheduler.createTaskGraph(graph_id, p.graph(p.node(a)))
    more = {"tasks": [p.node(b, a)]}
    for _ in range(2):
        p.scheduler.extendTaskGraph(graph_id, more)
    p.wait_pending(a)
    p.queue.claimTask(a, 0, WORKER)
    assert not p.pending(b)
    p.queue.reportCompleted(a, 0)
    p.wait_pending(b)
    p.queue.claimTask(b, 0, WORKER)
    assert p.state(graph_id) == "running"
    p.queue.reportCompleted(b, 0)
    p.wait_state(graph_id, "finished")
    found, _ = p.inspected(graph_id)
    assert (found["status"]["state"], len(found["tasks"])) == ("finished", 2)


def n1(p: Player) -> None:
    """What is seen of a graph under way."""
    graph_id, a, b = slugid.nice(), slugid.nice(), slugid.nice()
    p.scheduler.createTaskGraph(graph_id, p.graph(p.node(a), p.node(b, a), tags={"MyTestTag": "MyTestTag"}))
    _, by_id = p.inspected(graph_id)
    assert (by_id[a]["state"], by_id[b]["state"]) == ("scheduled", "unscheduled")
    assert not p.pending(b)
    p.complete(a)
    p.wait_pending(b)
    assert p.state(graph_id) == "running"
    assert p.scheduler.info(graph_id)["tags"]["MyTestTag"] == "MyTestTag"
    found, by_id = p.inspected(graph_id)
    assert found["status"]["state"] == "running"
    assert (by_id[a]["state"], by_id[b]["state"]) == ("completed", "scheduled")
    assert found["scopes"] == SCOPES
    one = p.scheduler.inspectTask(graph_id, a)
    assert (one["state"], one["satisfied"]) == ("completed", True)


def r1(p: Player, *, again: bool = True) -> None:
    """A failure that a rerun makes good."""
    graph_id, a = slugid.nice(), slugid.nice()
    p.scheduler.createTaskGraph(graph_id, p.graph(p.node(a, reruns=1)))
    p.wait_pending(a)
    p.queue.claimTask(a, 0, WORKER)
    p.queue.reportFailed(a, 0)
    p.wait_until(lambda: len(p.queue.status(a)["status"]["runs"]) == 2)
    assert p.state(graph_id) == "running"
    p.queue.claimTask(a, 1, WORKER)
    assert p.state(graph_id) == "running"
    if again:
        p.queue.reportCompleted(a, 1)
        p.wait_state(graph_id, "finished")
    else:
        p.queue.reportFailed(a, 1)
        p.wait_state(graph_id, "blocked")
        one = p.scheduler.inspectTask(graph_id, a)
        assert (one["state"], one["satisfied"], one["rerunsLeft"]) == ("completed", False, 0)


def r2(p: Player) -> None:
    """A failure that it does not."""
    r1(p, again=False)


def queue(p: Player) -> None:
    """Each method of the queue once, and what it refuses."""
    q, graph_id, a, b = p.queue, slugid.nice(), slugid.nice(), slugid.nice()
    task = p.task(workerType="alone")
    for _ in range(2):
        assert q.createTask(a, task)["status"]["state"] == "pending"
    assert q.task(a)["metadata"] == METADATA
    assert q.status(a)["status"]["runs"][0]["reasonCreated"] == "scheduled"
    assert q.pendingTasks(PROVISIONER, "alone")["pendingTasks"] == 1
    claimed = q.claimTask(a, 0, WORKER)
    assert (claimed["runId"], claimed["task"]["workerType"]) == (0, "alone")
    own = taskcluster.Queue({"baseUrl": p.base, "maxRetries": 0, "credentials": claimed["credentials"]})
    lent = Recorded(own)
    assert lent.reclaimTask(a, 0)["takenUntil"] >= claimed["takenUntil"]
    assert lent.reportException(a, 0, {"reason": "worker-shutdown"})["status"]["state"] == "pending"
    assert q.pendingTasks(PROVISIONER, "alone")["pendingTasks"] == 1
    (again,) = q.claimWork(PROVISIONER, "alone", {**WORKER, "tasks": 4})["tasks"]
    assert (again["status"]["taskId"], again["runId"]) == (a, 1)
    p.refused(409, lambda: q.reportCompleted(a, 0))
    for _ in range(2):
        assert q.reportFailed(a, 1)["status"]["state"] == "failed"
    assert q.rerunTask(a)["status"]["state"] == "pending"
    q.claimTask(a, 2, WORKER)
    for _ in range(2):
        assert q.reportCompleted(a, 2)["status"]["runs"][2]["reasonResolved"] == "completed"
    p.refused(409, lambda: q.claimTask(a, 2, WORKER))
    q.createTask(b, task)
    assert q.cancelTask(b)["status"]["runs"][0]["reasonResolved"] == "canceled"
    p.scheduler.createTaskGraph(graph_id, p.graph(p.node(slugid.nice())))
    assert len(q.listTaskGroup(graph_id)["tasks"]) == 1
    p.refused(404, lambda: q.status(slugid.nice()))
    p.refused(409, lambda: q.createTask(a, p.task(payload={"x": 1})))


def loop(p: Player) -> None:
    """A worker on the client of the queue, as they were written, executes a diamond with a task that fails once."""
    graph_id, (a, b, c, d) = slugid.nice(), [slugid.nice() for _ in range(4)]
    nodes = [p.node(a), p.node(b, a, reruns=1), p.node(c, a), p.node(d, b, c)]
    for node in nodes:
        node["task"] = p.task(workerType="worker-loop", payload={"answer": node["taskId"]})
    p.scheduler.createTaskGraph(graph_id, p.graph(*nodes, scopes=[f"queue:define-task:{PROVISIONER}/worker-loop"]))
    done: list[str] = []
    while p.state(graph_id) != "finished":
        for each in p.queue.claimWork(PROVISIONER, "worker-loop", {**WORKER, "tasks": 2})["tasks"]:
            task_id, run = each["status"]["taskId"], each["runId"]
            options = {"baseUrl": p.base, "maxRetries": 0, "credentials": each["credentials"]}
            own = taskcluster.Queue(options)
            own.reclaimTask(task_id, run)
            if task_id == b and run == 0:
                own.reportFailed(task_id, run)
            else:
                own.reportCompleted(task_id, run)
                done.append(each["task"]["payload"]["answer"])
        if len(done) == len(nodes):
            p.wait_state(graph_id, "finished")
    assert (done[0], set(done[1:3]), done[3]) == (a, {b, c}, d)


SCENARIOS = {each.__name__: each for each in (snippet, s1_s2, s3_s4_s5, s6, i1, i2, x1, x2, n1, r1, r2, queue, loop)}


def main() -> None:
    global SCENARIO
    base, *names = sys.argv[1:]
    credentials: list[dict[str, str]] = []
    if "--sign" in names:
        place = names.index("--sign")
        given = names[place + 1 :]
        pairs = zip(given[::2], given[1::2], strict=True)
        credentials = [{"clientId": name, "accessToken": token} for name, token in pairs]
        del names[place:]
    for name in names:
        SCENARIO = name
        try:
            SCENARIOS[name](Player(base, credentials))
        except TaskclusterAuthFailure as error:
            raise SystemExit(f"{name}: {error}: {getattr(error, 'body', '')}") from error


if __name__ == "__main__":
    main()
