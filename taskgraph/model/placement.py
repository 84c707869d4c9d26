"""Where a task may run: the queue that it goes to, and what a worker must have to take it."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.model import limits

DEFAULT_TARGET: Final = "default"
_HOST_PREFIX: Final = "host-"
_HOST: Final = re.compile(limits.HOST_PATTERN)
_LABEL: Final = re.compile(limits.WORKER_LABEL_PATTERN)
_NOT_IN_TARGETS: Final = re.compile(r"[^a-z0-9]+")
_TARGET_CHARS_MAX: Final = 40
_HASH_CHARS: Final = 8


def target_of(task: Mapping[str, Any]) -> str:
    """The target that a task goes to, by its definition: that of its host, where it names one."""
    host = task.get("host")
    return str(task.get("target", DEFAULT_TARGET)) if host is None else host_target(str(host))


def host_target(host: str) -> str:
    """The target of one host: `host-` and its name; a hash makes up for what no queue's name can hold."""
    name = host.lower()
    plain = _NOT_IN_TARGETS.sub("-", name).strip("-")
    if plain == name and len(_HOST_PREFIX) + len(plain) <= _TARGET_CHARS_MAX:
        return _HOST_PREFIX + plain
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    room = _TARGET_CHARS_MAX - len(_HOST_PREFIX) - len(mark) - 1
    return f"{_HOST_PREFIX}{plain[:room].strip('-')}-{mark}".replace("--", "-")


def is_host(text: Any) -> bool:
    return isinstance(text, str) and _HOST.fullmatch(text) is not None


def is_worker_label(text: Any) -> bool:
    return isinstance(text, str) and _LABEL.fullmatch(text) is not None


def labels_of(task: Mapping[str, Any]) -> tuple[str, ...]:
    found = task.get("workerLabels", ())
    return tuple(str(each) for each in found) if isinstance(found, list | tuple) else ()


@dataclass(frozen=True, slots=True)
class Offer:
    """What one worker brings beside its executors. host: the one that it serves by name, "" for none."""

    labels: frozenset[str] = frozenset()
    host: str = ""

    def why_not(self, task: Mapping[str, Any]) -> str | None:
        """Why this worker must not take a task of this definition, one sentence; None if it may."""
        host = task.get("host")
        if host is not None and str(host).lower() != self.host.lower():
            own = f"serves {self.host}" if self.host else "serves no host by name"
            return f"the task is for the host {host}, and this worker {own}"
        missing = [label for label in labels_of(task) if label not in self.labels]
        return f"this worker lacks {labels_text(missing)}" if missing else None


def worker_options(target: str, task: Mapping[str, Any]) -> str:
    """What to say to `taskgraph worker` for one that takes tasks like this, as far as the definition is known."""
    host = task.get("host")
    words = [f"--target {target}" if host is None or target != host_target(str(host)) else f"--host {host}"]
    return " ".join([*words, *(f"--label {each}" for each in labels_of(task))])


def labels_text(labels: Iterable[str]) -> str:
    """`the label gpu`, `the labels gpu and cuda-12`."""
    listed = list(labels)
    if len(listed) == 1:
        return f"the label {listed[0]}"
    return f"the labels {', '.join(listed[:-1])} and {listed[-1]}"
