"""Commands in pods, without a cluster: Jobs as they are asked for, what is made of what clusters say, and a server that
does what a real one does seldom (lost answers, connections that break). A real cluster is in tests/e2e/test_cluster.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from kubernetes_asyncio.client import ApiClient

from taskgraph.documents.read import read_document
from taskgraph.model.errors import InvalidGraph, InvalidInput
from taskgraph.model.secrecy import Handed
from taskgraph.worker.executors import Outcome, Work, built_in
from taskgraph.worker.executors.jobs import job_of, name_of, outcome_of, patched, read_pod_order, secret_of
from tests.unit.test_executors import ManualClock

GOOD: dict[str, Any] = {"image": "tiny", "command": ["make", "all"]}
FULL: dict[str, Any] = {
    "image": "tiny",
    "command": ["sh", "-c", "echo $HOME $(pwd) $$"],
    "env": {"A": "$(B)", "TOKEN": {"$secret": "token"}},
    "inheritEnv": ["PASSED", "NOT_SET"],
    "cwd": "/src",
    "timeout": 1.5,
    "namespace": "batch",
    "serviceAccount": "builder",
    "resources": {"cpu": 2, "memory": "4Gi", "gpu": 1},
    "nodeSelector": {"disk": "ssd"},
    "pod": {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [{"name": "task", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "enableServiceLinks": None,
    },
}


def work(payload: dict[str, Any], run: int = 0, claim: str = "c1", **more: Any) -> Work:
    return Work("g", "t", run, "a", claim, {"executor": "kubernetes", "payload": payload, **more})


def asked(payload: dict[str, Any], **more: Any) -> dict[str, Any]:
    one = work(payload, **more)
    return job_of(one, read_pod_order(one.definition), 10.0)


async def as_known(manifest: dict[str, Any], kind: str) -> Any:
    """The manifest as the models that are generated from Kubernetes' own description know it."""
    async with ApiClient() as api:
        return api.sanitize_for_serialization(api.deserialize(SimpleNamespace(data=json.dumps(manifest)), kind))


async def test_a_job_has_nothing_that_kubernetes_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED", "yes")
    job = asked(FULL)
    assert await as_known(job, "V1Job") == job
    job["metadata"]["uid"] = "u1"
    secret = secret_of(job, {"TOKEN": b"hidden"})
    assert await as_known(secret, "V1Secret") == secret


def test_a_job_is_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED", "yes")
    job = asked(FULL, run=3)
    assert job["metadata"]["name"] == name_of(work(GOOD, run=3)) != name_of(work(GOOD, run=2))
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["activeDeadlineSeconds"] == 2
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["serviceAccountName"] == "builder"
    assert "enableServiceLinks" not in pod, "a member of the patch that is null goes"
    (container,) = pod["containers"]
    assert container["args"] == ["sh", "-c", "echo $$HOME $$(pwd) $$$$"], "Kubernetes makes one $ of two"
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert container["workingDir"] == "/src"
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": "1"},
    }
    env = {each["name"]: each for each in container["env"]}
    assert env["PASSED"]["value"] == "yes"
    assert env["A"]["value"] == "$$(B)"
    assert env["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": job["metadata"]["name"], "key": "TOKEN"}}
    assert env["TASKGRAPH_FENCING_TOKEN"]["value"] == job["metadata"]["annotations"]["taskgraph/claim"] == "c1"
    assert "NOT_SET" not in env


def test_what_a_task_may_take_ends_without_its_worker_too() -> None:
    assert "activeDeadlineSeconds" not in asked(GOOD)["spec"]
    assert asked(GOOD, maxRunTime=90)["spec"]["activeDeadlineSeconds"] == 150


def test_a_graph_whose_id_is_no_label_has_none() -> None:
    one = Work("a graph: 1", "t", 0, "a", "c1", {"payload": GOOD})
    job = job_of(one, read_pod_order(one.definition), 10.0)
    assert "taskgraph/graph" not in job["metadata"]["labels"]
    assert job["metadata"]["annotations"]["taskgraph/graph"] == "a graph: 1"


def test_a_patch_merges_what_has_a_name() -> None:
    assert patched({"a": [1], "b": 1}, {"a": [2], "b": None}) == {"a": [2]}
    assert patched([{"name": "x", "v": 1}], [{"name": "x", "w": 2}, {"name": "y"}]) == [
        {"name": "x", "v": 1, "w": 2},
        {"name": "y"},
    ]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"command": ["true"]}, "payload.image must name an image"),
        ({**GOOD, "resources": {"cpus": 2}}, "payload.resources must be an object"),
        ({**GOOD, "resources": {"cpu": True}}, "payload.resources must be an object"),
        ({**GOOD, "inheritEnv": True}, "must be a list of names"),
        ({**GOOD, "outputs": ["a"]}, "payload.outputs: a pod shares no folder"),
        ({**GOOD, "nodeSelector": {"a": 1}}, "payload.nodeSelector"),
        ({**GOOD, "pod": []}, "payload.pod must be an object"),
        ({**GOOD, "namespace": 1}, "payload.namespace must be a text"),
        ({"image": "tiny"}, "payload.command must be a list"),
    ],
)
def test_a_payload_that_is_wrong_is_refused(payload: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace(".", r"\.")):
        read_pod_order({"payload": payload})


def test_a_document_is_told_what_a_pod_has_not() -> None:
    payload = {**GOOD, "outputs": ["x"], "command": ["cat", {"$file": "a", "path": "x"}]}
    with pytest.raises(InvalidGraph) as caught:
        read_document(json.dumps({"tasks": {"a": {"task": {"executor": "kubernetes", "payload": payload}}}}))
    assert {"not-in-a-pod"} < {problem.code for problem in caught.value.problems}


# --- what clusters say


def pod(state: dict[str, Any] | None = None, phase: str = "Failed", **more: Any) -> dict[str, Any]:
    statuses = [{"name": "sidecar", "state": {"running": {}}}, {"name": "task", "state": state or {}}]
    container = {"name": "task", "resources": more.pop("resources", {})}
    about = {"name": "p", "uid": "p1", "creationTimestamp": "2026-01-01T00:00:00Z", **more.pop("metadata", {})}
    status = {"phase": phase, "containerStatuses": statuses if state else [], **more}
    return {"metadata": about, "spec": {"containers": [container]}, "status": status}


def end(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def said(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


GOING: dict[str, Any] = {"status": {}}
OVER: dict[str, Any] = {"status": {"conditions": [said("Failed", "BackoffLimitExceeded")]}}
LATE: dict[str, Any] = {"status": {"conditions": [said("FailureTarget", "DeadlineExceeded")]}}
DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
MOVED = {"conditions": [said("DisruptionTarget", "EvictionByEvictionAPI", "drained")]}
LIMITED = {"resources": {"limits": {"memory": "32Mi"}}}


@pytest.mark.parametrize(
    ("job", "pod", "kind", "words"),
    [
        (GOING, None, "goes on", ""),
        (GOING, pod(phase="Pending"), "goes on", ""),
        (GOING, pod({"running": {}}, "Running"), "goes on", ""),
        (GOING, pod(end(0, "Completed", '{"n": 7}'), "Succeeded"), "done", ""),
        (GOING, pod(end(0, "Completed", "{"), "Succeeded"), "failed", "the result is not JSON"),
        (GOING, pod(end(0, "Completed", "1 " * 2048), "Succeeded"), "failed", "longer than 4,096 bytes"),
        (GOING, pod(end(3)), "failed", "exit code 3"),
        (GOING, pod(end(75)), "temporary", "exit code 75"),
        (GOING, pod(end(137, "OOMKilled"), **LIMITED), "failed", "more memory than its 32Mi"),
        (GOING, pod(end(137, "OOMKilled")), "temporary", "its node ran out of memory"),
        (GOING, pod(end(128, "StartError", "no such file")), "failed", "cannot be started: StartError: no such file"),
        (GOING, pod(end(137, "ContainerStatusUnknown")), "temporary", "it is not known"),
        (GOING, pod(reason="Evicted", message="low on disk"), "temporary", "Evicted: low on disk"),
        (GOING, pod(reason="OutOfcpu"), "temporary", "OutOfcpu"),
        (GOING, pod(reason="UnexpectedAdmissionError"), "temporary", "UnexpectedAdmissionError"),
        (GOING, pod(end(143), **MOVED), "temporary", "EvictionByEvictionAPI: drained"),
        (GOING, pod({"running": {}}, "Running", **MOVED), "goes on", ""),
        (GOING, pod(end(0, "Completed"), **MOVED, **DELETED), "done", ""),
        (GOING, pod({"running": {}}, "Running", **DELETED), "goes on", ""),
        (GOING, pod(end(143), **DELETED), "temporary", "its pod was deleted"),
        (LATE, pod(end(143), **DELETED), "failed", "timed out after 3 s"),
        (LATE, None, "failed", "timed out after 3 s"),
        (OVER, None, "temporary", "its pod was deleted"),
        (GOING, pod(reason="Odd"), "failed", "the pod failed: Odd"),
    ],
)
def test_what_becomes_of_a_run_by_what_its_cluster_says(
    job: dict[str, Any], pod: dict[str, Any] | None, kind: str, words: str
) -> None:
    definition = {"payload": {**GOOD, "timeout": 3}}
    outcome = outcome_of(job, pod, read_pod_order(definition), definition)
    found = "goes on" if outcome is None else "temporary" if outcome.temporary else "done"
    assert ("failed" if outcome is not None and outcome.failed and not outcome.temporary else found) == kind
    assert outcome is None or words in outcome.reason


# --- a server


class Api:
    """Keeps Jobs by the documented rules. faults: what is done to requests, in order: (method and path, what to do).

    ends: how the pod of a Job stands, in order, each seen by one look or one watch.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.secrets: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.faults: list[tuple[str, Callable[[web.Request], web.StreamResponse | None]]] = []
        self.states: list[dict[str, Any]] = [pod(end(0, "Completed"), "Succeeded")]
        self.log = b"one\ntwo\n"
        self.cut = 0  # bytes of the log after which its connection breaks, once
        self.url = ""

    def state(self) -> dict[str, Any]:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        line = f"{request.method} {request.path.rpartition('/')[2]}"
        self.requests.append(line)
        body = json.loads(await request.text() or "{}")
        fault = self.faults.pop(0)[1] if self.faults and self.faults[0][0] == line else None
        lost = fault(request) if fault else None
        if lost is not None:
            return lost
        match request.method, request.path.split("/")[-1]:
            case "POST", "jobs":
                return self.create(body)
            case "POST", "secrets":
                self.secrets.append(body)
                return web.json_response(body, status=201)
            case "GET", "jobs":
                return web.json_response({"items": list(self.jobs.values())})
            case "GET", "pods" if "watch" in request.query:
                event = {"type": "MODIFIED", "object": self.state()}
                return web.Response(text=json.dumps(event) + "\n" if event["object"] else "")
            case "GET", "pods":
                state = self.state()
                return web.json_response({"metadata": {"resourceVersion": "7"}, "items": [state] if state else []})
            case "GET", "log":
                return await self.read(request)
            case "GET", "events":
                assert "involvedObject.kind=Job" in request.query["fieldSelector"]
                return web.json_response({"items": [{"reason": "FailedCreate", "message": "exceeded quota"}]})
            case "DELETE", name:
                if name in self.jobs and body["preconditions"]["uid"] != self.jobs[name]["metadata"]["uid"]:
                    return refusal(409, "Conflict")
                return web.json_response(self.jobs.pop(name)) if name in self.jobs else refusal(404, "NotFound")
            case _, name:
                return web.json_response(self.jobs[name]) if name in self.jobs else refusal(404, "NotFound")

    def create(self, body: dict[str, Any]) -> web.Response:
        name = body["metadata"]["name"]
        if name in self.jobs:
            return refusal(409, "AlreadyExists")
        body["metadata"]["uid"] = f"uid-{len(self.requests)}"
        self.jobs[name] = body
        return web.json_response(body, status=201)

    async def read(self, request: web.Request) -> web.StreamResponse:
        if not self.cut:
            return web.Response(body=self.log)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(self.log[: self.cut])
        self.cut = 0
        assert request.transport is not None
        request.transport.close()
        return response


def refusal(status: int, reason: str, message: str = "") -> web.Response:
    return web.json_response({"kind": "Status", "reason": reason, "message": message}, status=status)


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    made, application = Api(), web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "batch"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    yield made
    await runner.cleanup()


class PassingClock(ManualClock):
    """Each look at it takes five seconds: what waits for a while, waits for so many looks."""

    def monotonic(self) -> float:
        self.slept.append(5.0)
        return super().monotonic()


async def run(one: Work, **secrets: str) -> tuple[Outcome, str]:
    log: list[bytes] = []

    async def write(data: bytes) -> None:
        log.append(data)

    executors = built_in(PassingClock(), handed=Handed(secrets=secrets))
    assert executors.why_not(one.definition) is None
    outcome = await executors.choose(one.definition).run(one, write)
    return outcome, b"".join(log).decode()


async def test_a_run_is_a_job(api: Api) -> None:
    api.states = [pod(phase="Pending"), pod({"running": {}}, "Running"), pod(end(0, "Completed", "[1]"), "Succeeded")]
    outcome, log = await run(work(GOOD))
    assert outcome == Outcome(failed=False, exit_code=0, result=b"[1]")
    assert log == "one\ntwo\n"
    assert list(api.jobs) == [name_of(work(GOOD))], "it stays for a while, for people to look at"
    assert api.requests.count("POST jobs") == 1


async def test_an_answer_that_is_lost_makes_no_second_job(api: Api) -> None:
    def lose(request: web.Request) -> web.StreamResponse:
        api.create(asked(GOOD))
        return refusal(504, "Timeout")

    api.faults = [("POST jobs", lose)]
    outcome, _ = await run(work(GOOD))
    assert not outcome.failed
    assert api.requests.count("POST jobs") == 2, "the second is answered 409, and the Job is the run's own"
    assert not [line for line in api.requests if line.startswith("DELETE")]


async def test_what_others_have_left_of_a_task_goes_first(api: Api) -> None:
    api.create(asked(GOOD, claim="dead", run=0))
    api.create(asked(GOOD, claim="before", run=1))
    outcome, _ = await run(work(GOOD, run=1))
    assert not outcome.failed
    (job,) = api.jobs.values()
    assert job["metadata"]["annotations"]["taskgraph/claim"] == "c1"


async def test_a_log_goes_on_where_its_connection_broke(api: Api) -> None:
    api.states = [pod({"running": {}}, "Running")] * 3 + [pod(end(0, "Completed"), "Succeeded")]
    api.cut = 5
    outcome, log = await run(work(GOOD))
    assert not outcome.failed
    assert log == "one\ntwo\n"


@pytest.mark.parametrize(
    "fault", [refusal(410, "Expired"), refusal(500, "InternalError"), web.Response(text="cut off {")]
)
async def test_a_cluster_that_is_away_for_a_while_ends_no_run(api: Api, fault: web.Response) -> None:
    api.states = [pod({"running": {}}, "Running"), pod(end(0, "Completed"), "Succeeded")]
    api.faults = [("GET pods", lambda request: fault)]
    outcome, _ = await run(work(GOOD))
    assert not outcome.failed


async def test_a_cluster_that_stays_away_ends_it_for_now(monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    api.faults = [("GET pods", lambda request: refusal(503, "ServiceUnavailable"))] * 100
    outcome, _ = await run(work(GOOD))
    assert outcome.temporary
    assert "503 ServiceUnavailable" in outcome.reason


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refusal(422, "Invalid", "bad"), "exception", "the cluster answered 422 Invalid: bad"),
        (refusal(403, "Forbidden", "no"), "failed", "the cluster answered 403 Forbidden: no"),
        (refusal(403, "Forbidden", "exceeded quota: x"), "temporary", "exceeded quota"),
        (refusal(401, "Unauthorized"), "failed", "the cluster answered 401 Unauthorized"),
    ],
)
async def test_what_a_cluster_refuses(api: Api, answer: web.Response, kind: str, words: str) -> None:
    api.faults = [("POST jobs", lambda request: refusal(*_of(answer)))] * 9
    outcome, _ = await run(work(GOOD))
    assert kind == ("exception" if outcome.exception else "temporary" if outcome.temporary else "failed")
    assert words in outcome.reason


def _of(answer: web.Response) -> tuple[int, str, str]:
    said = json.loads(answer.text or "")
    return answer.status, said["reason"], said["message"]


async def test_secrets_go_by_a_secret_that_goes_with_the_job(api: Api) -> None:
    api.log = b"it is hidden-thing\n"
    outcome, log = await run(work({**GOOD, "env": {"T": {"$secret": "t"}}}), TASKGRAPH_SECRET_T="hidden-thing")
    assert not outcome.failed
    assert log == "it is ***\n"
    assert "hidden" not in json.dumps(api.jobs)
    (secret,) = api.secrets
    assert secret["metadata"]["ownerReferences"][0]["uid"] == api.jobs[name_of(work(GOOD))]["metadata"]["uid"]


async def test_what_is_cancelled_is_deleted(api: Api) -> None:
    api.states = [pod({"running": {}}, "Running")]
    running = asyncio.create_task(run(work(GOOD)))
    while "GET log" not in api.requests:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert api.jobs == {}


async def test_a_pod_that_is_deleted_is_not_begun_anew(api: Api) -> None:
    again = pod({"running": {}}, "Running", metadata={"uid": "p2"})
    api.states = [pod({"running": {}}, "Running"), again]
    outcome, _ = await run(work(GOOD))
    assert outcome.temporary
    assert outcome.reason == "its pod was deleted"
    assert api.jobs == {}, "or its cluster would go on with the second"


@pytest.mark.parametrize("may_read", [True, False])
async def test_a_pod_that_is_not_made_is_explained_to_who_may_know(api: Api, may_read: bool) -> None:
    api.states = [{}, {}, pod(end(0, "Completed"), "Succeeded")]
    api.faults = [] if may_read else [("GET events", lambda request: refusal(403, "Forbidden"))]
    outcome, log = await run(work(GOOD))
    assert not outcome.failed
    assert log == ("waiting: FailedCreate: exceeded quota\n" if may_read else "") + "one\ntwo\n"


async def test_an_image_that_does_not_come_is_waited_for_in_vain(api: Api) -> None:
    api.states = [pod({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, "Pending")]
    outcome, log = await run(work({**GOOD, "image": "none"}))
    assert outcome.reason == "the container cannot be started: ErrImagePull: no such image"
    assert log.startswith("waiting: ErrImagePull: no such image\n")
    assert api.jobs == {}


def test_a_worker_without_a_cluster_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/there/is/none")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    why = built_in(ManualClock()).why_not({"executor": "kubernetes", "payload": GOOD})
    assert why == "this worker runs in no cluster, and finds no kubeconfig (KUBECONFIG, ~/.kube/config)"
