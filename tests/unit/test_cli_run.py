"""What `run` does before it submits: on the built-in executors."""

from collections.abc import Mapping

import pytest

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.interfaces.cli.run import get_ready
from taskgraph.model.clock import SystemClock
from taskgraph.worker.executors import CommandExecutor, built_in, children

pytestmark = pytest.mark.skipif(not children.can_spawn(), reason="this system starts children by asyncio")

COMMAND = {"payload": {"command": ["true"]}}


def graph(roots: int = 0, *, chain: int = 0, fan: int = 0, task: Mapping[str, object] = COMMAND) -> GraphDocument:
    requires: dict[str, tuple[str, ...]] = {f"r{n}": () for n in range(roots)}
    requires |= {f"c{n}": (f"c{n - 1}",) if n else () for n in range(chain)}
    requires |= {f"f{n}": (f"c{chain - 1}",) for n in range(fan)}
    return GraphDocument({label: TaskNode(label, needs, task=task) for label, needs in requires.items()})


def begins(document: GraphDocument, override: str | None = None) -> bool:
    executors = built_in(SystemClock(), override=override)
    get_ready(document, executors, slots=1)
    command = executors["command"]
    assert isinstance(command, CommandExecutor)
    return command._starting is not None


@pytest.mark.parametrize(
    "document",
    [graph(50), graph(chain=3, fan=50), graph(60, chain=40)],
    ids=["roots", "fan", "roots beside a chain"],
)
async def test_what_starts_short_commands_starts_before_a_wide_graph_is_submitted(document: GraphDocument) -> None:
    assert begins(document)


@pytest.mark.parametrize(
    "document",
    [graph(), graph(49), graph(chain=200), graph(chain=100, fan=49), graph(100, task={"payload": {}})],
    ids=["nothing", "few", "a chain", "a small fan", "no commands"],
)
async def test_what_starts_short_commands_is_not_started_in_vain(document: GraphDocument) -> None:
    assert not begins(document)


async def test_commands_that_are_not_run_need_no_starters() -> None:
    assert not begins(graph(100), override="noop")
