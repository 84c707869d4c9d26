"""Commands in pods of a real cluster of one node, which `scripts/cluster` brings: results, failures, what breaks."""

import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import IMAGE, Cluster, cluster
from tests.e2e.processes import started, taskgraph, until, write_graph
from tests.helm import install

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with cluster() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(running.kubeconfig))
        yield running


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store/a.db"


def in_pod(*command: Any, requires: tuple[str, ...] = (), node: dict[str, Any] | None = None, **payload: Any) -> Any:
    inner = {"image": IMAGE, "command": list(command), **payload}
    return {"requires": list(requires), "task": {"executor": "kubernetes", "payload": inner}, **(node or {})}


def ran(store: str, folder: Path, tasks: dict[str, Any], code: int = 0, graph: str = "g", **env: str) -> None:
    path = write_graph(folder / f"{graph}.json", tasks)
    done = taskgraph(
        "run", str(path), "--id", graph, "--slots", "8", store=store, cwd=folder, timeout_seconds=300, **env
    )
    assert done.returncode == code, done.stderr


def said(store: str, folder: Path, *words: str) -> str:
    done = taskgraph(*words, store=store, cwd=folder)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def resolution(store: str, folder: Path, graph: str, label: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(store, folder, "task", graph, label, "--json"))
    return found["resolution"] | {"run": found["run"]}


def kubectl(*words: str) -> str:
    return subprocess.run(["kubectl", *words], check=True, capture_output=True, text=True).stdout


def test_a_graph_runs_in_pods(made: Cluster, store: str, tmp_path: Path) -> None:
    tasks = {
        "make": in_pod(
            "sh", "-ec", 'pwd; echo "$$ $1 $OWN"; echo "{\\"n\\": 7}" > $TASKGRAPH_RESULT_FILE', "-", "$(OWN) $$",
            env={"OWN": "$(PATH)", "TOKEN": {"$secret": "token"}}, cwd="/tmp",
        ),
        "use": in_pod("sh", "-c", 'echo "n is $0"; env', {"$result": "make", "path": "/n"}, requires=("make",),
                      inheritEnv=["PASSED"], resources={"cpu": "50m", "memory": "64Mi"}),
        "token": in_pod("sh", "-c", "echo it is $TOKEN", env={"TOKEN": {"$secret": "token"}}),
    }  # fmt: skip
    ran(store, tmp_path, tasks, PASSED="yes", TASKGRAPH_SECRET_TOKEN="hidden-thing")
    assert said(store, tmp_path, "logs", "g", "make") == "/tmp\n1 $(OWN) $$ $(PATH)\n"
    lines = set(said(store, tmp_path, "logs", "g", "use").splitlines())
    assert {"n is 7", "PASSED=yes", "TASKGRAPH_LABEL=use", "TASKGRAPH_GRAPH_ID=g"} <= lines
    assert said(store, tmp_path, "logs", "g", "token") == "it is ***\n"
    jobs = json.loads(kubectl("get", "jobs", "-l", "taskgraph/graph=g", "-o", "json"))["items"]
    assert len(jobs) == 3
    assert "hidden-thing" not in json.dumps(jobs)


def test_what_fails_says_why(made: Cluster, store: str, tmp_path: Path) -> None:
    never = {"containers": [{"name": "task", "imagePullPolicy": "Never"}]}
    tasks = {
        "code": in_pod("sh", "-c", "exit 3"),
        "memory": in_pod("sh", "-c", "x=a; while true; do x=$x$x; done", resources={"memory": "32Mi"}),
        "command": in_pod("there-is-none"),
        "image": in_pod("true", image="localhost/there-is-none", pod=never),
        "name": in_pod("true", image="not an image"),
        "time": in_pod("sh", "-c", "trap 'echo bye; exit 0' TERM; sleep 60 & wait", timeout=12),
        "result": in_pod("sh", "-c", "seq 1 2000 > $TASKGRAPH_RESULT_FILE"),
        "namespace": in_pod("true", namespace="there-is-none"),
        "quantity": in_pod("true", resources={"memory": "much"}),
    }
    ran(store, tmp_path, tasks, code=1)
    reasons = {label: resolution(store, tmp_path, "g", label)["reason"] for label in tasks}
    assert reasons["code"] == "exit code 3"
    assert reasons["memory"] == "killed: it took more memory than its 32Mi (OOMKilled)"
    assert reasons["command"].startswith("the container cannot be started: StartError")
    assert reasons["image"].startswith("the container cannot be started: ErrImageNeverPull")
    assert reasons["name"].startswith("the container cannot be started: InvalidImageName")
    assert reasons["time"] == "timed out after 12 s"
    assert reasons["result"] == "the result is longer than 4,096 bytes, all that a pod can leave"
    assert reasons["namespace"] == 'the cluster answered 404 NotFound: namespaces "there-is-none" not found'
    assert reasons["quantity"].startswith("the cluster answered 400 BadRequest")
    assert "bye" in said(store, tmp_path, "logs", "g", "time")


def test_a_pod_that_is_taken_away_spends_no_rerun(made: Cluster, store: str, tmp_path: Path) -> None:
    retry = {"retry": {"limit": 3, "delay": 1}}
    script = "trap 'exit 1' TERM; echo $TASKGRAPH_RUN_ID; [ $TASKGRAPH_RUN_ID = 1 ] || { sleep 60 & wait; }"
    path = write_graph(tmp_path / "g.json", {"t": in_pod("sh", "-c", script, node=retry)})
    with started("run", str(path), "--id", "lost", store=store, cwd=tmp_path) as process:
        chosen = ("-l", "taskgraph/graph=lost,taskgraph/run=0")
        until(lambda: "Running" in kubectl("get", "pods", *chosen), seconds=60, what="its pod runs")
        kubectl("delete", "pod", *chosen, "--wait=false")
        assert process.wait(240) == 0
    assert resolution(store, tmp_path, "lost", "t")["run"] == 1
    assert said(store, tmp_path, "logs", "lost", "t").splitlines()[-1] == "1"
    assert "its pod was deleted" in said(store, tmp_path, "events", "lost", "--json")


def test_a_worker_that_was_killed_leaves_a_job_that_the_next_run_deletes(
    made: Cluster, store: str, tmp_path: Path
) -> None:
    path = write_graph(tmp_path / "g.json", {"t": in_pod("sh", "-c", "echo $TASKGRAPH_RUN_ID; sleep 15")})
    with started("run", str(path), "--id", "killed", store=store, cwd=tmp_path) as process:
        until(
            lambda: "Running" in kubectl("get", "pods", "-l", "taskgraph/graph=killed"), seconds=60, what="a pod runs"
        )
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    (earlier,) = kubectl("get", "jobs", "-l", "taskgraph/graph=killed", "-o", "name").split()
    done = taskgraph("run", "--id", "killed", store=store, cwd=tmp_path, timeout_seconds=300)
    assert done.returncode == 0, done.stderr
    assert said(store, tmp_path, "logs", "killed", "t").splitlines()[-1] == "1"
    (later,) = kubectl("get", "jobs", "-l", "taskgraph/graph=killed", "-o", "name").split()
    assert later != earlier


def test_the_chart_gives_workers_the_rights_that_the_executor_needs(
    made: Cluster, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "image": {"repository": "localhost/taskgraph", "pullPolicy": "Never"},
        "store": {"url": "https://a.table.core.windows.net"},
        "serve": {"http": 8080},
        "jobs": {"enabled": True},
    }
    install(values, made.kubeconfig)
    assert kubectl("get", "deployments", "-l", "app.kubernetes.io/instance=demo", "-o", "name").split() == [
        "deployment.apps/demo-taskgraph-serve",
        "deployment.apps/demo-taskgraph-worker-default",
    ]
    account = json.loads(kubectl("get", "serviceaccount", "demo-taskgraph-worker", "-o", "json"))
    token = json.loads(kubectl("get", "secret", account["secrets"][0]["name"], "-o", "json"))["data"]["token"]
    config = json.loads(made.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = base64.b64decode(token).decode()
    (tmp_path / "worker").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "worker"))
    tasks = {"t": in_pod("sh", "-c", "echo hi; sleep 60", timeout=2, env={"T": {"$secret": "t"}}, node={"reruns": 1})}
    ran(store, tmp_path, tasks, code=1, graph="rights", TASKGRAPH_SECRET_T="hidden-thing")
    found = resolution(store, tmp_path, "rights", "t")
    assert (found["reason"], found["run"]) == ("timed out after 2 s", 1)
    assert "hi\n" in said(store, tmp_path, "logs", "rights", "t")
    forbidden = {"t": in_pod("true", namespace="kube-system")}
    ran(store, tmp_path, forbidden, code=1, graph="forbidden")
    assert "403 Forbidden" in resolution(store, tmp_path, "forbidden", "t")["reason"]


def test_a_pod_that_is_not_made_is_explained(made: Cluster, store: str, tmp_path: Path) -> None:
    kubectl("create", "namespace", "full")
    kubectl("create", "quota", "none", "--hard=pods=0", "--namespace", "full")
    ran(store, tmp_path, {"t": in_pod("true", namespace="full", timeout=2)}, code=1, graph="full")
    assert resolution(store, tmp_path, "full", "t")["reason"] == "timed out after 2 s"
    log = said(store, tmp_path, "logs", "full", "t")
    assert log.startswith("waiting: FailedCreate: ")
    assert "exceeded quota" in log


def test_what_is_cancelled_gets_a_signal_and_goes(made: Cluster, store: str, tmp_path: Path) -> None:
    command = ("sh", "-c", "trap 'echo bye; exit 0' TERM; echo here; sleep 60 & wait")
    path = write_graph(tmp_path / "g.json", {"t": in_pod(*command)})
    with started("run", str(path), "--id", "ended", store=store, cwd=tmp_path) as process:
        until(
            lambda: "here" in taskgraph("logs", "ended", "t", store=store, cwd=tmp_path).stdout, seconds=60, what="it"
        )
        assert taskgraph("cancel", "ended", store=store, cwd=tmp_path).returncode == 0
        assert process.wait(120) == 1
    assert "bye" in said(store, tmp_path, "logs", "ended", "t")
    until(lambda: not kubectl("get", "jobs", "-l", "taskgraph/graph=ended"), seconds=120, what="its Job is gone")


def test_a_run_outlasts_the_server_of_its_cluster(made: Cluster, store: str, tmp_path: Path) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 1; done; echo '[1]' > $TASKGRAPH_RESULT_FILE"
    path = write_graph(tmp_path / "g.json", {"t": in_pod("sh", "-c", script)})
    with started("run", str(path), "--id", "outlasts", store=store, cwd=tmp_path) as process:
        chosen = ("-l", "taskgraph/graph=outlasts")
        until(lambda: "Running" in kubectl("get", "pods", *chosen), seconds=60, what="its pod runs")
        made.stop("kube-apiserver")
        time.sleep(4)  # while it is away: nothing shows that there is nothing
        made.start("kube-apiserver")
        assert process.wait(120) == 0
    made.until_it_answers()
    assert resolution(store, tmp_path, "outlasts", "t")["run"] == 0
    assert said(store, tmp_path, "logs", "outlasts", "t").split() == [str(number) for number in range(1, 13)]
