"""The Helm chart, rendered by Helm: what it says with all kinds of values, and what it refuses."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from kubernetes_asyncio.client import ApiClient

import taskgraph as product
from tests.e2e.processes import ROOT, taskgraph
from tests.helm import CHART, lint, render

pytestmark = pytest.mark.campaign

BY_KEY: dict[str, Any] = {
    "image": {"repository": "registry.example.com/taskgraph"},
    "store": {"connectionString": "AccountName=a;AccountKey=b"},
}
BY_IDENTITY: dict[str, Any] = {
    "image": {"repository": "registry.example.com/taskgraph", "tag": "7"},
    "imagePullSecrets": [{"name": "pull"}],
    "store": {"url": "https://myaccount.table.core.windows.net"},
    "workloadIdentity": {"clientId": "00000000-0000-0000-0000-000000000001"},
    "prefix": "builds",
    "extraEnv": [{"name": "TASKGRAPH_KEEP_DAYS", "value": "30"}],
    "serve": {"http": 8080, "args": ["--allow-host", "graphs.example.com"]},
    "workers": {
        "default": None,
        "gpu": {
            "slots": 2,
            "args": ["--label", "cuda-12"],
            "scaled": {"max": 3},
            "image": "gpu:1",
            "resources": {"limits": {"memory": "1Gi"}},
            "pod": {"nodeSelector": {"pool": "gpu"}},
        },
        "many": {"replicas": 0},
    },
    "jobs": {"enabled": True},
}


def things(values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """All that the chart makes, by kind and name."""
    texts = [text for name, text in render(values).items() if name.endswith(".yaml")]
    found = [each for text in texts for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.parametrize("values", [BY_KEY, BY_IDENTITY], ids=["key", "identity"])
async def test_it_has_nothing_that_kubernetes_does_not_know(values: dict[str, Any]) -> None:
    assert lint(values) == []
    async with ApiClient() as api:
        for (kind, _), each in things(values).items():
            if each["apiVersion"].startswith("keda"):
                job = each.get("spec", {}).get("jobTargetRef")
                if job is None:
                    continue
                kind, each = "JobSpec", job
            known = api.deserialize(SimpleNamespace(data=json.dumps(each)), f"V1{kind}")
            assert api.sanitize_for_serialization(known) == each


def test_pods_run_commands_that_there_are() -> None:
    ports = 0
    for (kind, name), each in things(BY_IDENTITY).items():
        spec = each.get("spec", {})
        if kind not in ("Deployment", "ScaledJob"):
            continue
        pod = (spec.get("jobTargetRef") or spec)["template"]["spec"]
        (container,) = pod["containers"]
        command, *options = container["args"]
        known = taskgraph(command, "--help", store="", cwd=ROOT, COLUMNS="200").stdout
        assert all(option in known for option in options if option.startswith("--")), name
        ports += len(container.get("ports", []))
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert env["TASKGRAPH_STORE"] == "https://myaccount.table.core.windows.net"
        assert env["TASKGRAPH_PREFIX"] == "builds"
        assert env["TASKGRAPH_KEEP_DAYS"] == "30"
        assert f"--uid {pod['securityContext']['runAsUser']} " in (ROOT / "deploy/container/Containerfile").read_text()
    assert ports == 1


def test_workers_come_with_the_messages_of_their_queue() -> None:
    made = things(BY_IDENTITY)
    job = made["ScaledJob", "demo-taskgraph-worker-gpu"]["spec"]
    assert job["maxReplicaCount"] == 3
    (trigger,) = job["triggers"]
    assert trigger["metadata"] == {"queueName": "builds-work-gpu", "queueLength": "5", "accountName": "myaccount"}
    assert trigger["authenticationRef"]["name"] in {name for kind, name in made if kind == "TriggerAuthentication"}
    pod = job["jobTargetRef"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["containers"][0]["args"][:3] == ["worker", "--target", "gpu"]
    assert "--until-idle" in pod["containers"][0]["args"]
    assert made["Deployment", "demo-taskgraph-worker-many"]["spec"]["replicas"] == 0
    assert ("Deployment", "demo-taskgraph-worker-default") not in made
    by_key = things({**BY_KEY, "workers": {"default": {"scaled": {}}}})
    (trigger,) = by_key["ScaledJob", "demo-taskgraph-worker-default"]["spec"]["triggers"]
    assert trigger["metadata"]["connectionFromEnv"] == "TASKGRAPH_STORE"


def test_a_key_stands_in_a_secret_alone() -> None:
    made = things(BY_KEY)
    assert [kind for (kind, _), each in made.items() if "AccountKey" in json.dumps(each)] == ["Secret"]
    named = things({**BY_KEY, "store": {"existingSecret": "mine"}})
    assert not [kind for kind, _ in named if kind in ("Secret", "Role")]
    assert "mine" in json.dumps(named["Deployment", "demo-taskgraph-serve"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"store": {"url": "https://a.table.core.windows.net", "existingSecret": "b"}}, "/store"),
        ({"store": {}}, "/store"),
        ({"image": {}}, "/image/repository"),
        ({"workers": {"Not_A_Target": {}}}, "Not_A_Target"),
        ({"workers": {"default": {"slot": 4}}}, "slot"),
        ({"serv": {}}, "serv"),
    ],
)
def test_values_that_are_wrong_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(words)):
        render({**BY_KEY, **change})


def test_its_version_is_that_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["version"] == chart["appVersion"] == product.__version__
