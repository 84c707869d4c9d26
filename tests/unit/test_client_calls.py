"""Functions as tasks: `@task`, `call=function`, what their arguments may be, and where workers find them."""

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Optional

import pytest

from taskgraph import Client, Graph, InvalidInput, task
from taskgraph.worker.executors import Work, load_callables


@task(retries=2, timeout=9.5, target="gpu")
def double(number: int) -> int:
    """Twice as much."""
    return 2 * number


@task(name="sum")
async def total(numbers: list[int], start: int = 0) -> int:
    return sum(numbers, start)


def plain(texts: dict[str, Any]) -> str:
    return "".join(texts.values())


def test_outside_of_a_graph_a_call_is_a_call() -> None:
    assert double(4) == 8
    assert asyncio.run(total([1, 2])) == 3
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")


def test_calls_make_tasks_with_what_they_require() -> None:
    with Graph() as graph:
        parts = [double(number) for number in (3, 4)]
        total([*parts, 5], start=double(1))
    assert graph.to_dict()["tasks"] == {
        "double": {
            "reruns": 2,
            "maxRunTime": 9.5,
            "task": {"target": "gpu", "payload": {"call": "double", "arguments": {"number": 3}}},
        },
        "double 2": {
            "reruns": 2,
            "maxRunTime": 9.5,
            "task": {"target": "gpu", "payload": {"call": "double", "arguments": {"number": 4}}},
        },
        "double 3": {
            "reruns": 2,
            "maxRunTime": 9.5,
            "task": {"target": "gpu", "payload": {"call": "double", "arguments": {"number": 1}}},
        },
        "sum": {
            "requires": ["double", "double 2", "double 3"],
            "task": {
                "payload": {
                    "call": "sum",
                    "arguments": {
                        "numbers": [{"$result": "double"}, {"$result": "double 2"}, 5],
                        "start": {"$result": "double 3"},
                    },
                }
            },
        },
    }
    assert len(graph.validate().tasks) == 4
    assert double(4) == 8


def test_a_block_in_a_block_is_of_its_own_graph() -> None:
    with Graph() as outer:
        with Graph() as inner:
            double(1)
        double(2)
        double(3)
    assert (list(inner.tasks), list(outer.tasks)) == (["double"], ["double", "double 2"])


async def test_a_graph_of_functions_runs_without_naming_them(client: Client) -> None:
    async def shout(text: str, context: Work) -> str:
        return f"{text}! {context.label}"

    with Graph() as graph:
        sums = total([double(1), double(2)])
        made = graph.task("join", call=plain, arguments={"texts": {"a": "x", "b": "y"}})
        graph.task("shout", call=shout, arguments={"text": made})
        graph.task("again", call=double, arguments={"number": sums})
        status = await client.run(graph, "g")  # inside of the block: runs call functions, and make no tasks
    assert (status.state, len(graph)) == ("finished", 6)
    assert await client.results("g") == {
        "double": 2,
        "double 2": 4,
        "sum": 6,
        "join": "xy",
        "shout": "xy! shout",
        "again": 12,
    }


async def test_what_is_handed_in_counts_before_what_the_graph_has(client: Client) -> None:
    graph = Graph()
    graph.task("a", call=plain, arguments={"texts": {}})
    await client.run(graph, "g", callables={"plain": lambda texts: "stand-in"})
    assert await client.result("g", "a") == "stand-in"


def test_two_functions_of_one_name_are_refused() -> None:
    graph = Graph()
    graph.task("a", call=lambda: 1)
    graph.task("b", call=lambda: 2)
    with pytest.raises(InvalidInput, match=r"two functions are called “<lambda>”.*@task\(name="):
        _ = graph.callables


class Thing:
    pass


def wide(
    a: int = 0,
    b: float = 0.0,
    c: bool = False,
    d: str = "",
    e: list[int] | None = None,
    f: Optional[dict[str, float]] = None,  # noqa: UP045 - its older form is read too
    g: int | str = 0,
    h: Literal["x", 1] = 1,
    i: None = None,
    j: Any = None,
    k: Thing | None = None,
    l: list = [],  # noqa: B006, E741
) -> None:
    pass


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": 1, "b": 1, "c": True, "d": "x", "e": [1], "f": {"x": 1.5}, "g": "x", "h": "x", "i": None, "j": [{}]},
        {"b": 1.5, "e": None, "f": None, "g": 1, "h": 1, "l": [1, "x", None]},
        {"e": (1, 2)},
        {"a": {"$param": "n"}, "e": [{"$result": "before", "path": "/0"}]},
    ],
)
def test_arguments_that_fit(arguments: dict[str, Any]) -> None:
    graph = Graph()
    graph.task("before")
    assert graph.task("a", call=wide, arguments=arguments).definition["payload"]["call"] == "wide"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"a": "1"}, r"^wide: a is '1' \(str\), and its annotation says int$"),
        ({"a": True}, r"^wide: a is True \(bool\), and its annotation says int$"),
        ({"a": 1.5}, r"a is 1\.5 \(float\)"),
        ({"b": "x"}, "says float$"),
        ({"c": 1}, "says bool$"),
        ({"d": None}, "^wide: d is None, and its annotation says str$"),
        ({"e": [1, "x"]}, r"e is \[1, 'x'\] \(list\), and its annotation says list\[int\] \| None$"),
        ({"f": {"x": "y"}}, "^wide: f is"),
        ({"g": 1.5}, r"says int \| str$"),
        ({"h": True}, "^wide: h is True"),
        ({"i": 0}, "says None"),
        ({"l": {}}, "says list$"),
        ({"j": {1}}, r"^wide: j is \{1\} \(set\), which is no JSON value"),
        ({"j": {"x": [Thing()]}}, "^wide: j/x/0 is"),
        ({"j": {1: 2}}, "^wide: j has the key 1: keys in JSON are texts$"),
        ({"z": 1}, "^wide: got an unexpected keyword argument 'z'$"),
        ({"context": 1}, "^wide: context is the worker's to give"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Graph().task("a", call=wide, arguments=arguments)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda number, /: None, "no / and no"),
        (lambda *numbers: None, "no / and no"),
        (lambda number: None, "missing a required argument: 'number'"),
    ],
)
def test_functions_that_a_task_cannot_call(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Graph().task("a", call=function)


def test_a_reference_makes_a_task_require_what_it_names() -> None:
    with Graph():
        first = double(1)
        made = double(first.result("/number", default=0))
    assert tuple(made.requires) == ("double",)


def test_any_further_arguments_of_a_function_that_takes_them() -> None:
    @task
    def loose(**more: int) -> None:
        pass

    with Graph():
        assert loose(a=1, b=2).definition["payload"]["arguments"] == {"a": 1, "b": 2}


def test_a_thread_without_the_context_of_the_block_calls() -> None:
    found: list[int] = []
    with Graph() as graph:
        thread = threading.Thread(target=lambda: found.append(double(4)))
        thread.start()
        thread.join()
    assert (found, len(graph)) == ([8], 0)


def test_workers_find_decorated_functions_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "steps_of_this_test.py").write_text(
        "from taskgraph import task\n@task(name='sum')\ndef total(n: int) -> int:\n    return n\n"
        "@task\ndef other() -> None:\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sorted(load_callables("steps_of_this_test")) == ["other", "sum"]
    assert list(load_callables("steps_of_this_test:total")) == ["sum"]
    sys.modules.pop("steps_of_this_test")
