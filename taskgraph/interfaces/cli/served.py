"""What a worker of this command serves: targets, labels, slots, executors."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taskgraph.interfaces.cli.progress import Board
from taskgraph.interfaces.operations.checks import check_target
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.model.secrecy import Handed

if TYPE_CHECKING:
    from taskgraph.model.placement import Offer

if TYPE_CHECKING:
    from taskgraph.model.clock import Clock
    from taskgraph.worker.executors import Executors


def default_slots() -> int:
    """Tasks side by side, unless said otherwise."""
    return max(2, os.cpu_count() or 2)


def make_executors(
    clock: "Clock",
    *,
    executor: str | None,
    time_scale: float,
    python: Sequence[str] | None,
    board: Board | None = None,
    grace_seconds: float = limits.GRACE_SECONDS,
    handed: Handed,
) -> "Executors":
    """The executors of a worker in this process. Raises InvalidSettings."""
    from taskgraph.worker.executors import Executors, built_in, load_callables

    callables: dict[str, Any] | None = None
    for place in python or ():
        found = load_callables(place)
        twice = sorted(set(callables or ()) & set(found))
        if twice:
            raise InvalidSettings(f"--python {place}: two callables are named {twice[0]}")
        callables = {**(callables or {}), **found}
    made = built_in(
        clock,
        callables=callables,
        override=executor,
        time_scale=time_scale,
        grace_seconds=grace_seconds,
        handed=handed,
    )
    return made if board is None else Executors([board.watched(each) for each in made.values()], executor)


@dataclass(frozen=True, slots=True)
class Serves:
    """What a worker of this process takes. given: whether targets were named."""

    targets: Sequence[str]
    offer: "Offer"
    given: bool


def serves(targets: Sequence[str] | None, labels: Sequence[str] | None, host: str | None) -> Serves:
    """What `--target`, `--label` and `--host` say. Raises InvalidInput."""
    from taskgraph.model.placement import DEFAULT_TARGET, Offer, host_target, is_host, is_worker_label

    for target in targets or ():
        check_target(target)
    for label in labels or ():
        if not is_worker_label(label):
            raise InvalidInput(
                f"--label {label}: a letter or digit, then letters, digits and . _ : / = + -, 63 at most"
            )
    if len(labels or ()) > limits.WORKER_LABELS_MAX:
        raise InvalidInput(f"--label is given {len(labels or ())} times; {limits.WORKER_LABELS_MAX} are allowed")
    if host == ".":
        from taskgraph.interfaces.app import host_name

        host = host_name()
    if host is not None and not is_host(host):
        raise InvalidInput(f"--host {host}: a letter or digit, then letters, digits and . _ -, 63 at most")
    served = list(dict.fromkeys([*(targets or [DEFAULT_TARGET]), *([host_target(host)] if host else [])]))
    return Serves(served, Offer(frozenset(labels or ()), host or ""), targets is not None)
