"""Results on their way from task to task: claimed by message, at once, ahead or alone, and with calls that fail."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.model.errors import InvalidGraph
from taskgraph.worker.executors import Outcome, Work, WriteLog
from tests.scenarios.crew import Calls, Crew, Script, virtually
from tests.scenarios.stage import Stage

Results = Callable[[str, dict[str, Any]], Any]


class Giver(Script):
    """An executor that hands on what a function makes of a label and a payload; None hands nothing on."""

    def __init__(self, results: Results, seconds: float = 0.0) -> None:
        super().__init__(seconds)
        self.results = results
        self.payloads: dict[str, Any] = {}

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        payload = dict(work.definition["payload"])
        self.payloads[work.label] = payload
        await super().run(work, write_log)
        value = self.results(work.label, payload)
        return Outcome(failed=False, result=None if value is None else json.dumps(value).encode())


class AtOnce(Giver):
    """The same, of those that take no time; but a task that waits for a result takes some."""

    instant = True
    queue = None


def counting(label: str, payload: dict[str, Any]) -> Any:
    """One more than the sum of what came before."""
    return {"n": 1 + sum(payload["before"])}


def document(requires: dict[str, list[str]], kind: Any = "graph", **more: Any) -> GraphDocument:
    """A graph in which every task takes the number of each that it requires."""
    tasks = {
        label: {
            "requires": wanted,
            "task": {"payload": {"before": [{"$result": each, "path": "/n"} for each in wanted]}},
        }
        for label, wanted in requires.items()
    }
    return document_from_object({"tasks": tasks, **more}, kind=kind)


def numbers(requires: dict[str, list[str]]) -> dict[str, Any]:
    """What `counting` comes to."""
    found: dict[str, int] = {}
    for label, wanted in requires.items():
        found[label] = 1 + sum(found[each] for each in wanted)
    return {label: {"n": number} for label, number in found.items()}


CHAIN = {f"c{n}": [f"c{n - 1}"] if n else [] for n in range(6)}
FAN = {"a": [], **{f"m{n:02}": ["a"] for n in range(20)}, "z": [f"m{n:02}" for n in range(20)]}
WIDE = {**{f"w{n:03}": [] for n in range(130)}, "z": [f"w{n:03}" for n in range(130)]}


@pytest.mark.parametrize("shape", [CHAIN, FAN, WIDE], ids=["chain", "fan", "wide"])
@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
@pytest.mark.parametrize("executor", [Giver, AtOnce])
def test_every_way_to_a_run_brings_the_results_along(
    shape: dict[str, list[str]], together: bool, executor: type[Giver]
) -> None:
    async def act(crew: Crew) -> None:
        await crew.stage.submit(document(shape))
        giver = executor(counting)
        crew.start(*(crew.together(giver, slots=4) if together else (crew.consumer(), crew.worker(giver, slots=4))))
        await crew.finish()
        assert await crew.stage.queries.results("graph") == dict(sorted(numbers(shape).items()))
        assert Counter(giver.runs) == Counter((label, 0) for label in shape)
        assert await crew.stage.queries.output("graph", "z" if "z" in shape else "c5")

    virtually(act)


@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_who_takes_no_result_pays_for_none(together: bool) -> None:
    """The same graph with and without: a read for each task that takes one, and nothing else."""
    counted: list[Counter[str]] = []

    def run(taking: bool) -> None:
        async def act(crew: Crew) -> None:
            made = document(CHAIN)
            if not taking:
                plain = {
                    label: {"requires": list(node.requires), "task": {"payload": {"before": []}}}
                    for label, node in made.tasks.items()
                }
                made = document_from_object({"tasks": plain})
            await crew.stage.submit(made)
            calls = Calls()
            giver = Giver(counting)
            crew.start(*(crew.together(giver, calls) if together else (crew.consumer(), crew.worker(giver, calls))))
            await crew.finish()
            counted.append(Counter(calls.calls))

        virtually(act)

    run(True)
    run(False)
    assert counted[0]["get"] - counted[1]["get"] == len(CHAIN) - 1
    assert counted[0]["commit"] == counted[1]["commit"]


def test_a_result_that_is_not_there_is_an_exception_and_no_rerun_is_spent() -> None:
    async def act(crew: Crew) -> None:
        tasks = {
            "a": {"task": {"payload": {}}},
            "b": {"requires": ["a"], "reruns": 5, "task": {"payload": {"x": {"$result": "a", "path": "/m"}}}},
            "c": {"requires": ["a"], "task": {"payload": {"x": {"$result": "a", "path": "/m", "default": 7}}}},
        }
        await crew.stage.submit(document_from_object({"tasks": tasks}))
        giver = Giver(lambda label, payload: {"n": 1})
        crew.start(crew.consumer(), crew.worker(giver))

        async def over() -> bool:
            states = await crew.stage.states()
            return states == {"a": "completed", "b": "exception", "c": "completed"}

        await crew.until(over)
        status = await crew.stage.queries.task_status("graph", "b")
        assert status.reruns_left == 5
        assert status.run == 0
        assert (status.resolution or {})["reason"] == (
            "the result of “a” has nothing at “/m”: there is an object with the key “n”"
        )
        assert [label for label, _ in giver.runs] == ["a", "c"], "what cannot be run has not begun"
        assert giver.payloads["c"] == {"x": 7}
        await crew.end()

    virtually(act)


def test_a_result_that_is_too_long_for_a_row_is_taken_from_its_file() -> None:
    async def act(crew: Crew) -> None:
        tasks = {"a": {"task": {"payload": {}}}, "b": {"requires": ["a"], "task": {"payload": {"x": {"$result": "a"}}}}}
        await crew.stage.submit(document_from_object({"tasks": tasks}))
        giver = Giver(lambda label, payload: "x" * 300_000)
        crew.start(crew.consumer(), crew.worker(giver))

        async def over() -> bool:
            return await crew.stage.states() == {"a": "completed", "b": "completed"}

        await crew.until(over)
        status = await crew.stage.queries.task_status("graph", "a")
        assert "4,000 UTF-16 units (OUTPUT_CHARS_MAX)" in (status.resolution or {})["noOutput"]
        assert giver.payloads["b"] == {"x": "x" * 300_000}
        await crew.end()

    virtually(act)


def test_a_result_whose_file_is_gone_is_no_result() -> None:
    async def act(crew: Crew) -> None:
        tasks = {"a": {"task": {"payload": {}}}, "b": {"requires": ["a"], "task": {"payload": {"x": {"$result": "a"}}}}}
        await crew.stage.submit(document_from_object({"tasks": tasks}))
        giver = Giver(lambda label, payload: "x" * 5_000)

        async def lose(*_: Any, **__: Any) -> None:
            return None

        crew.logs.read = lose  # type: ignore[method-assign]
        crew.start(crew.consumer(), crew.worker(giver))

        async def over() -> bool:
            return await crew.stage.states() == {"a": "completed", "b": "exception"}

        await crew.until(over)
        status = await crew.stage.queries.task_status("graph", "b")
        assert "4,000 UTF-16 units (OUTPUT_CHARS_MAX)" in (status.resolution or {})["reason"]
        await crew.end()

    virtually(act)


def test_what_failed_or_was_skipped_gives_null_or_the_default() -> None:
    class Failing(Giver):
        async def run(self, work: Work, write_log: WriteLog) -> Outcome:
            if work.label == "fails":
                return Outcome(failed=True, reason="broke")
            return await super().run(work, write_log)

    async def act(crew: Crew) -> None:
        optional = [{"label": "fails", "optional": True}, {"label": "skipped", "optional": True}]
        payload = {
            "failed": {"$result": "fails"},
            "skipped": {"$result": "skipped", "path": "/n"},
            "default": {"$result": "skipped", "default": [0]},
            "there": {"$result": "good", "path": "/n"},
        }
        tasks = {
            "fails": {"task": {"payload": {}}},
            "good": {"task": {"payload": {}}},
            "skipped": {"requires": ["fails"], "task": {"payload": {}}},
            "end": {"requires": [*optional, "good"], "task": {"payload": payload}},
        }
        await crew.stage.submit(document_from_object({"tasks": tasks, "failurePolicy": "continue"}))
        giver = Failing(lambda label, payload: {"n": 1})
        crew.start(crew.consumer(), crew.worker(giver))
        await crew.finish()
        assert (await crew.stage.states())["skipped"] == "skipped"
        assert giver.payloads["end"] == {"failed": None, "skipped": None, "default": [0], "there": 1}

    virtually(act)


@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_a_store_that_does_not_answer_costs_no_run(together: bool) -> None:
    for at in range(1, 12):

        async def act(crew: Crew, at: int = at) -> None:
            await crew.stage.submit(document(CHAIN))
            giver = Giver(counting)
            calls = Calls(at, "unavailable", "get")
            crew.start(*(crew.together(giver, calls) if together else (crew.consumer(), crew.worker(giver, calls))))

            async def sweep() -> bool:
                await crew.stage.sweep()
                return await crew.stage.state() == "finished"

            await crew.until(sweep)
            assert await crew.stage.queries.results("graph") == numbers(CHAIN)
            row = await crew.stage.row("c5")
            assert row.columns["retriesLeft"] == 5
            await crew.end()

        virtually(act)


def test_a_run_after_a_lost_lease_is_given_the_same() -> None:
    async def act(crew: Crew) -> None:
        await crew.stage.submit(document({"a": [], "b": ["a"]}))
        completed = crew.stage.completed(await crew.stage.claim("a"), output={"n": 41})
        await crew.stage.deliver(completed)
        await crew.stage.deliver(completed)  # which changes nothing
        await crew.stage.claim("b")  # by somebody who is never heard of again
        giver = Giver(counting)
        crew.start(crew.consumer(), crew.worker(giver))

        async def swept() -> bool:
            await crew.stage.sweep()
            return await crew.stage.state() == "finished"

        await crew.until(swept)
        assert giver.runs == [("b", 1)]
        assert giver.payloads["b"] == {"before": [41]}
        assert await crew.stage.queries.results("graph") == {"a": {"n": 41}, "b": {"n": 42}}
        await crew.end()

    virtually(act)


# --- extensions ------------------------------------------------------------------------------------------------


def more(*labels: str, requires: list[str]) -> GraphDocument:
    payload = {"x": [{"$result": label} for label in labels]}
    return document_from_object(
        {"tasks": {"x": {"requires": requires, "task": {"payload": payload}}}}, kind="extension"
    )


async def test_an_extension_takes_what_it_requires_or_what_has_completed(stage: Stage) -> None:
    await stage.submit(document({"a": [], "b": ["a"], "c": []}))
    staged = await stage.stage_extension(more("a", requires=["c"]))
    await stage.pump()
    head = await stage.queries.request("graph", staged.request)
    assert head["state"] == "refused"
    assert "“x” uses the result of “a”, which has not completed" in str(head["reason"])
    assert "name it in requires" in str(head["reason"])
    assert set(await stage.states()) == {"a", "b", "c"}
    await stage.complete("a")
    assert await stage.extend(more("a", requires=["c"])) == "done", "what has completed stays so"
    definition = json.loads(str((await stage.row("x")).columns["task"]))
    assert definition["payload"] == {"x": [{"$result": stage.task_id("a"), "label": "a"}]}


async def test_an_extension_that_takes_of_nobody_is_refused(stage: Stage) -> None:
    await stage.submit(document({"a": []}))
    staged = await stage.stage_extension(more("nobody", requires=["a"]))
    await stage.pump()
    assert "has a task “nobody”" in str((await stage.queries.request("graph", staged.request))["reason"])
    with pytest.raises(InvalidGraph):
        document({"a": []}, x=1)
