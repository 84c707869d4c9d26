"""Jobs of Kubernetes as values: what a run asks of a cluster, and how it has ended by what the cluster says."""

import base64
import hashlib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.model.errors import InvalidInput
from taskgraph.model.timing import run_seconds_max, temporary_exit_codes
from taskgraph.worker.executors.command import Order, read_order
from taskgraph.worker.executors.contract import (
    Outcome,
    Work,
    checked_result,
    failed,
    failed_for_now,
    payload_of,
    retry_after_in,
)

Json = dict[str, Any]

CONTAINER: Final = "task"
CLAIM: Final = "taskgraph/claim"
TASK: Final = "taskgraph/task"
RESULT_BYTES: Final = 4096
"""Of the message that a container may leave at its end: longer ones are cut by the cluster."""

_RESULT: Final = "/dev/termination-log"
_KEPT_SECONDS: Final = 3600  # for which a Job stays when it is over, for people to look at
_LATER_SECONDS: Final = 60  # by which a worker ends a run sooner than the cluster would
_RESOURCES: Final = ("cpu", "memory", "gpu")
_GPU: Final = "nvidia.com/gpu"
_NOT_HERE: Final = ("envFile", "inputs", "outputs", "cache", "options")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)

_TAKEN_AWAY: Final = frozenset(
    {
        "Evicted",
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
_OUT_OF: Final = "OutOf"  # OutOfcpu, OutOfmemory, OutOfpods
"""Reasons of pods that failed by what became of their node, or were not let onto it."""

_NOT_STARTED: Final = frozenset({"ContainerCannotRun", "StartError"})
_UNKNOWN: Final = "ContainerStatusUnknown"
STUCK_SECONDS: Final[Mapping[str, float]] = {
    "InvalidImageName": 0,
    "ErrImageNeverPull": 0,
    "ErrImagePull": 300,
    "ImagePullBackOff": 300,
    "ImageInspectError": 300,
    "CreateContainerConfigError": 300,
    "CreateContainerError": 300,
    "RunContainerError": 300,
}
"""What a container may wait for in vain, and for how long it is waited with it."""


@dataclass(frozen=True, slots=True)
class PodOrder(Order):
    """A payload that was read.

    namespace: "" for that of the worker. pod: changes to its specification. passed: variables of the worker.
    """

    image: str = ""
    namespace: str = ""
    service_account: str = ""
    resources: Mapping[str, str] | None = None
    node_selector: Mapping[str, str] | None = None
    pod: Mapping[str, Any] | None = None
    passed: tuple[str, ...] = ()


def read_pod_order(definition: Mapping[str, Any]) -> PodOrder:
    """Raises InvalidInput with what is wrong with the payload, in one sentence."""
    payload = payload_of(definition)
    if theirs := [name for name in _NOT_HERE if name in payload]:
        raise InvalidInput(f"payload.{theirs[0]}: a pod shares no folder with its worker, and has no {theirs[0]}")
    image, resources, pod = payload.get("image"), payload.get("resources", {}), payload.get("pod", {})
    if not isinstance(image, str) or not image:
        raise InvalidInput('payload.image must name an image, such as "python:3.12-slim"')
    names = {name: payload.get(name, "") for name in ("namespace", "serviceAccount")}
    for name, value in names.items():
        if not isinstance(value, str):
            raise InvalidInput(f"payload.{name} must be a text")
    if not isinstance(resources, Mapping) or not all(
        name in _RESOURCES and isinstance(value, str | int | float) and not isinstance(value, bool)
        for name, value in resources.items()
    ):
        raise InvalidInput('payload.resources must be an object such as {"cpu": 2, "memory": "4Gi", "gpu": 1}')
    selector = payload.get("nodeSelector", {})
    if not isinstance(selector, Mapping) or not all(isinstance(value, str) for value in selector.values()):
        raise InvalidInput("payload.nodeSelector must be an object of texts")
    if not isinstance(pod, Mapping):
        raise InvalidInput("payload.pod must be an object: what is to be otherwise in the specification of the pod")
    order = read_order(definition)
    if order.inherited is True:
        raise InvalidInput("payload.inheritEnv of a pod must be a list of names of variables")
    return PodOrder(
        order.argv,
        order.env,
        order.secrets,
        None,
        False,
        order.cwd,
        order.timeout_seconds,
        image,
        names["namespace"],
        names["serviceAccount"],
        {name: str(value) for name, value in resources.items()},
        dict(selector),
        pod,
        tuple(sorted(map(os.fsdecode, order.inherited or ()))),
    )


def task_of(work: Work) -> str:
    """The task, in 20 characters that may stand in a name and in a label."""
    digest = hashlib.sha256(f"{work.graph_id}/{work.task_id}".encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest)[:20].decode().lower()


def name_of(work: Work) -> str:
    """The name of the run's Job, the same for each worker: there is never a second one."""
    return f"taskgraph-{task_of(work)}-{work.run}"


def job_of(work: Work, order: PodOrder, grace_seconds: float) -> Json:
    """What is asked of the cluster for a run."""
    labels = {"app.kubernetes.io/managed-by": "taskgraph", TASK: task_of(work), "taskgraph/run": str(work.run)}
    if _LABEL.fullmatch(work.graph_id):
        labels["taskgraph/graph"] = work.graph_id
    about = {"taskgraph/graph": work.graph_id, "taskgraph/taskId": work.task_id, "taskgraph/label": work.label}
    pod: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(grace_seconds),
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(order.service_account),
        "containers": [_container(work, order)],
    }
    if order.service_account:
        pod["serviceAccountName"] = order.service_account
    if order.node_selector:
        pod["nodeSelector"] = dict(order.node_selector)
    spec: Json = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "template": {"metadata": {"labels": labels}, "spec": patched(pod, order.pod or {})},
    }
    if order.timeout_seconds is not None:
        spec["activeDeadlineSeconds"] = math.ceil(order.timeout_seconds)
    elif (most := run_seconds_max(work.definition)) is not None:
        spec["activeDeadlineSeconds"] = math.ceil(most) + _LATER_SECONDS
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name_of(work), "labels": labels, "annotations": {CLAIM: work.claim, **about}},
        "spec": spec,
    }


def secret_of(job: Json, values: Mapping[str, bytes]) -> Json:
    """What holds the secrets of a run, until its Job is deleted."""
    about = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": about["name"], "uid": about["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": about["name"], "labels": about["labels"], "ownerReferences": [owner]},
        "data": {name: base64.b64encode(value).decode() for name, value in values.items()},
    }


def _container(work: Work, order: PodOrder) -> Json:
    env = {
        **{name: os.environ[name] for name in order.passed if name in os.environ},
        **order.env,
        "TASKGRAPH_GRAPH_ID": work.graph_id,
        "TASKGRAPH_TASK_ID": work.task_id,
        "TASKGRAPH_LABEL": work.label,
        "TASKGRAPH_RUN_ID": str(work.run),
        "TASKGRAPH_FENCING_TOKEN": work.claim,
        "TASKGRAPH_STORE": work.store_url,
        "TASKGRAPH_RESULT_FILE": _RESULT,
        **({"TRACEPARENT": work.traceparent} if work.traceparent else {}),
    }
    secret = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": name_of(work), "key": name}}} for name in order.secrets
    ]
    container: Json = {
        "name": CONTAINER,
        "image": order.image,
        "args": list(map(_literally, order.argv)),
        "env": [*({"name": name, "value": _literally(text)} for name, text in env.items()), *secret],
        "terminationMessagePath": _RESULT,
        "terminationMessagePolicy": "File",
    }
    if order.cwd is not None:
        container["workingDir"] = order.cwd
    if asked := dict(order.resources or {}):
        gpu = {_GPU: count} if (count := asked.pop("gpu", "")) else {}
        memory = {"memory": size} if (size := asked.get("memory", "")) else {}
        container["resources"] = {"requests": {**asked, **gpu}, "limits": {**memory, **gpu}}
    return container


def _literally(text: str) -> str:
    """Kubernetes replaces $(NAME), and makes one $ of two."""
    return text.replace("$", "$$")


def patched(value: Any, patch: Any) -> Any:
    """By JSON merge patch (RFC 7386); of lists whose members have names, those of the same name are merged."""
    if isinstance(value, list) and isinstance(patch, list) and _named(value) and _named(patch):
        changes = {each["name"]: each for each in patch}
        merged = [patched(each, changes.pop(each["name"], {})) for each in value]
        return [*merged, *changes.values()]
    if not isinstance(patch, Mapping):
        return patch
    made = dict(value) if isinstance(value, Mapping) else {}
    for key, change in patch.items():
        if change is None:
            made.pop(key, None)
        else:
            made[key] = patched(made.get(key), change)
    return made


def _named(members: list[Any]) -> bool:
    return all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in members)


# --- what a cluster says


def is_over(job: Json) -> bool:
    return _condition(job, "Complete", "Failed") is not None


def ended(pod: Json | None) -> Json | None:
    """How the container of a pod has ended, None if it has not."""
    return _state(pod).get("terminated")


def is_ending(pod: Json) -> bool:
    """Whether it has ended or will: what the Job says of it matters now."""
    failed = pod["status"].get("phase") in ("Failed", "Succeeded")
    return failed or ended(pod) is not None or "deletionTimestamp" in pod["metadata"]


def has_begun(pod: Json | None) -> bool:
    return "running" in _state(pod) or ended(pod) is not None


def waits_for(pod: Json | None) -> tuple[str, str]:
    """Why the container of a pod does not run yet: the reason, and words; both "" where nothing is said."""
    waiting = _state(pod).get("waiting")
    if waiting:
        return waiting.get("reason", ""), waiting.get("message", "")
    unscheduled = _condition(pod or {}, "PodScheduled", status="False")
    return (unscheduled.get("reason", ""), unscheduled.get("message", "")) if unscheduled else ("", "")


def outcome_of(job: Json, pod: Json | None, order: PodOrder, definition: Mapping[str, Any]) -> Outcome | None:
    """How the run has ended; None if it has not, or that cannot be known yet."""
    failure = _condition(job, "Failed", "FailureTarget")
    if failure is not None and failure.get("reason") == "DeadlineExceeded":
        seconds = order.timeout_seconds or job["spec"]["activeDeadlineSeconds"]
        return failed(f"timed out after {seconds:g} s")
    if pod is None:
        return failed_for_now("its pod was deleted") if is_over(job) else None
    end = ended(pod)
    if end is not None and end["exitCode"] == 0:
        return _by_exit_code(end, definition)
    if (disrupted := _condition(pod, "DisruptionTarget")) is not None and is_ending(pod):
        return failed_for_now(f"the cluster took the pod away: {_words(disrupted)}")
    if "deletionTimestamp" in pod["metadata"]:
        return failed_for_now("its pod was deleted") if end is not None else None
    status = pod["status"]
    reason = status.get("reason", "")
    if status.get("phase") == "Failed" and (reason in _TAKEN_AWAY or reason.startswith(_OUT_OF)):
        return failed_for_now(f"the cluster took the pod away: {_words(status)}")
    if end is None:
        return failed(f"the pod failed: {_words(status)}") if status.get("phase") == "Failed" else None
    if end.get("reason") == "OOMKilled":
        limit = (pod["spec"]["containers"][0].get("resources") or {}).get("limits", {}).get("memory")
        if limit is not None:
            return failed(f"killed: it took more memory than its {limit} (OOMKilled)", exit_code=end["exitCode"])
        return failed_for_now("killed: its node ran out of memory (OOMKilled)", exit_code=end["exitCode"])
    if end.get("reason") in _NOT_STARTED:
        return failed(f"the container cannot be started: {_words(end)}")
    if end.get("reason") == _UNKNOWN:
        return failed_for_now(f"it is not known how the container ended: {_words(end)}")
    return _by_exit_code(end, definition)


def _by_exit_code(end: Json, definition: Mapping[str, Any]) -> Outcome:
    code, message = end["exitCode"], end.get("message", "").encode("utf-8", "replace")
    result = None
    try:
        result = checked_result(message) if message.strip() else None
    except InvalidInput as error:
        if code == 0 and len(message) >= RESULT_BYTES:
            return failed(f"the result is longer than {RESULT_BYTES:,} bytes, all that a pod can leave", exit_code=0)
        if code == 0:
            return failed(str(error), exit_code=0)
    if code in temporary_exit_codes(definition):
        return failed_for_now(f"exit code {code}", exit_code=code, retry_after=retry_after_in(result))
    return failed(f"exit code {code}", exit_code=code) if code else Outcome(failed=False, exit_code=0, result=result)


def _state(pod: Json | None) -> Json:
    for each in (pod or {}).get("status", {}).get("containerStatuses") or []:
        if each["name"] == CONTAINER:
            state: Json = each.get("state") or {}
            return state
    return {}


def _condition(thing: Json, *kinds: str, status: str = "True") -> Json | None:
    for each in thing.get("status", {}).get("conditions") or []:
        if each["type"] in kinds and each["status"] == status:
            found: Json = each
            return found
    return None


def _words(said: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (said.get("reason", ""), said.get("message", "")))) or "it says no reason"
