"""`taskgraph.testing`: the page's examples hold, and the store is one for whoever opens it."""

import re
from pathlib import Path

import pytest

import taskgraph.testing
from taskgraph import Client, Graph
from taskgraph.testing import ManualClock, MemoryStore, drive

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=[re.findall(r"def (test_\w+)", text)[0] for text in EXAMPLES])
def test_an_example_of_the_page_passes(example: str) -> None:
    names: dict[str, object] = {}
    exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()  # type: ignore[operator]


def test_the_page_names_what_there_is() -> None:
    table = PAGE.read_text("utf-8").partition("## What there is")[2]
    assert set(re.findall(r"`(\w+)`", table)) >= set(taskgraph.testing.__all__)


def test_a_store_is_the_same_when_it_is_opened_again() -> None:
    store = MemoryStore()
    graph = Graph(name="one")
    graph.task("one", call="say")
    with Client.sync(store) as client:
        graph_id = client.run(graph, callables={"say": lambda: "said"}).graph_id
    with Client.sync(store) as client:
        assert client.result(graph_id, "one") == "said"


def test_it_is_named_for_people() -> None:
    assert Client(MemoryStore()).settings.display == "MemoryStore"


def test_without_an_event_loop() -> None:
    queues = MemoryStore(ManualClock()).queues()
    drive(queues.send("work", ["a"], delay_seconds=5))
    assert drive(queues.receive("work", lease_seconds=1)) == []
    assert queues.due_seconds("work") == 5
    with pytest.raises(AssertionError, match="waited"):
        drive(ManualClock().sleep(0))
