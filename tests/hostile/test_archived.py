"""What comes as a file is a document: it is put back as it stands, or refused with nothing written (F3, F9).

The rounds are those of `tests/hostile/archived.py`, with seeds that are new each day; a breach names its seed. The
whole campaign runs with scripts/test --long, or by `python -m tests.hostile.archived --count 10000`.
"""

import base64
import gzip
import io
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from taskgraph.engine import restore as restoring
from taskgraph.engine.archive_file import Bounds
from taskgraph.engine.notifier import INDEX, Notifier, retry
from taskgraph.engine.restore import look, restore
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused, TooLarge
from taskgraph.model.messages import Rerun
from taskgraph.protocol.notices import PREFIX, channel_of
from taskgraph.storage.tables import Range, query_all
from tests.hostile.archived import DAY, Listener, _content, _live_on, campaign, honest, packed
from tests.scenarios.stage import Stage, memory_stage
from tests.scenarios.test_retention import Shelf
from tests.upgrade.keep import FOLDER

ROUNDS = 150
MORE_ROUNDS = 10_000
EVIL = {"command": ["sh", "-c", "touch PWNED"]}


def file_of(lines: list[Any]) -> io.BytesIO:
    """The lines with counts and digest put right, and no damage."""
    chance = random.Random(0)
    chance.random = lambda: 0.5  # type: ignore[method-assign]
    return io.BytesIO(packed(chance, lines))


def row(lines: list[Any], key: str) -> dict[str, Any]:
    (found,) = [each["columns"] for each in lines if each.get("row") == key]
    return dict(found)


def task(lines: list[Any], label: str) -> dict[str, Any]:
    (found,) = [
        each["columns"] for each in lines if each.get("columns", {}).get("label") == label and "run" in each["columns"]
    ]
    return dict(found)


async def put_back(lines: list[Any]) -> tuple[Stage, Shelf]:
    stage, shelf = memory_stage(), Shelf()
    stage.clock.advance(DAY)
    await restore(stage.handlers, shelf, file_of(lines), "file")
    return stage, shelf


async def test_nothing_moves_and_nothing_leaves() -> None:
    today = datetime.now(tz=UTC).toordinal()
    table = await campaign(today * MORE_ROUNDS * 10, ROUNDS)
    print(table.text())
    assert table.breaches == []
    assert table.accepted_rounds > 0
    assert table.rounds - table.accepted_rounds > ROUNDS // 2


@pytest.mark.slow
async def test_nothing_moves_and_nothing_leaves_in_many_rounds() -> None:
    table = await campaign(datetime.now(tz=UTC).toordinal() * MORE_ROUNDS * 10, MORE_ROUNDS)
    print(table.text())
    assert table.breaches == []


async def test_without_the_judgement_the_ruling_sees_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "check", lambda plan, source, trust, room: None)
    lines = (await honest())["blocked"]
    pending(lines)
    assert any("moved" in each or "sent to" in each for each in await _live_on(*await put_back(lines)))


async def test_what_is_honest_comes_back_and_lies_still() -> None:
    for name, lines in (await honest()).items():
        stage, shelf = await put_back(lines)
        assert await _live_on(stage, shelf) == [], name


@pytest.mark.parametrize("path", sorted(FOLDER.glob("0.3/archive-*.json.gz")), ids=lambda path: path.name)
async def test_archives_of_earlier_programs_come_back_and_lie_still(path: Any) -> None:
    stage, shelf = memory_stage(), Shelf()
    stage.clock.advance(DAY)
    with path.open("rb") as file:
        await restore(stage.handlers, shelf, file, path.name)
    assert await _live_on(stage, shelf) == []


async def test_a_blocked_graph_that_lay_still_goes_on_when_it_is_rerun() -> None:
    stage, _ = await put_back((await honest())["blocked"])
    stage.clock.advance(3_000 * DAY)  # past the deadlines that it had
    await stage.sweep()
    assert await stage.state() == "blocked"
    stage._know(["bad", "good", "after", "m", "n", "more"])
    await stage.deliver(Rerun(stage.graph_id, ((stage.task_id("bad"), 0),)))
    assert await stage.state() == "running"


# --- what moves, and what acts -------------------------------------------------------------------------------------


def pending(lines: list[Any]) -> None:
    """The first finding of F3: a task that is pending in a blocked graph."""
    columns = task(lines, "after")
    columns |= {"state": "pending", "requiresLeft": "[]", "pendingSince": {"time": "2024-01-01T00:00:00Z"}}
    put(lines, "after", columns)


def put(lines: list[Any], label: str, columns: dict[str, Any]) -> None:
    for each in lines:
        if each.get("columns", {}).get("label") == label and "run" in each["columns"]:
            each["columns"] = columns


def on_graph(**more: Any) -> Callable[[list[Any]], None]:
    def spoil(lines: list[Any]) -> None:
        next(each for each in lines if each.get("row") == "task-graph")["columns"].update(more)

    return spoil


def on_task(**more: Any) -> Callable[[list[Any]], None]:
    def spoil(lines: list[Any]) -> None:
        put(lines, "after", {**task(lines, "after"), **more})

    return spoil


def inserted(key: str, **columns: Any) -> Callable[[list[Any]], None]:
    def spoil(lines: list[Any]) -> None:
        rows = [each for each in lines if "row" in each and each["row"] != key]
        rows.append({"row": key, "columns": {"schema": 1, **columns}})
        others = [each for each in lines if "row" not in each]
        lines[:] = [others[0], *sorted(rows, key=lambda each: str(each["row"])), *others[1:]]

    return spoil


def on_channel(**more: Any) -> Callable[[list[Any]], None]:
    def spoil(lines: list[Any]) -> None:
        next(each for each in lines if str(each.get("row")).startswith(PREFIX))["columns"].update(more)

    return spoil


TIME = {"time": "2024-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (pending, "task “after” is pending, and would go on by itself"),
        (on_task(state="running", claim="c", leaseUntil=TIME), "task “after” is running"),
        (on_task(due="skip"), "“after” is about to be skipped"),
        (on_task(cancel="x"), "“after” is about to be cancelled"),
        (on_task(run=10**9), "run is 1000000000"),
        (on_task(run=-1), "run is -1"),
        (on_task(target="../x"), "it names no target"),
        (on_task(target="windows"), "its definition names another target"),
        (on_task(label="other"), "its id is not that of its label"),
        (on_task(requiresLeft="[]"), "after: it does not wait for “bad”, which it requires"),
        (on_task(schema=99), "a newer schema"),
        (on_graph(settling=True), "about to be paused or resumed"),
        (on_graph(pausing='["paused"]'), "about to be paused or resumed"),
        (on_graph(limiting=True), "its tasks are about to come under a limit"),
        (on_graph(extending="r"), "the request r is under way"),
        (on_graph(stalledBecause="x"), "it is marked as stalled"),
        (on_graph(failedTasks=0), "the graph"),
        (on_graph(tasks=7), "the graph"),
        (on_graph(created={"time": "9000-01-01T00:00:00Z"}), "will be in the future"),
        (inserted("request:r", state="staged", digest="x", staged=TIME), "the request r is staged"),
        (inserted("request:r", state="accepted", digest="x", staged=TIME), "the request r is accepted"),
        (inserted("limit:graph", max=1, inFlight='["x:0"]', moved=TIME), "runs that are in flight"),
        (inserted("lead"), "“lead” is no row of a graph"),
        (inserted("index:live"), "“index:live” is no row of a graph"),
        (inserted("task:x"), "“task:x” is no row of a graph"),
        (inserted("event:0000009999", sequence=1, time=TIME, events="[]"), "fact 1 of the journal"),
        (inserted(f"{PREFIX}0123456789abcdef", state="open", channel=json.dumps(EVIL)), "the row of another channel"),
        (inserted("event:1", sequence=1, time=TIME, events="[]"), "an event row whose key is not its number"),
        (on_channel(sequence=-(2**31)), "its sequence is -2147483648"),
        (on_channel(part=-1), "its part is -1"),
        (inserted(f"{PREFIX}0123456789abcdef", state="open", channel="{}"), "neither a queue nor a webhook"),
    ],
)
async def test_what_would_go_on_by_itself_or_contradicts_itself_is_refused(
    spoil: Callable[[list[Any]], None], words: str
) -> None:
    lines = (await honest())["blocked"]
    spoil(lines)
    stage, shelf = memory_stage(), Shelf()
    stage.clock.advance(DAY)
    before = _content(stage, shelf)
    with pytest.raises(Refused) as refused:
        await restore(stage.handlers, shelf, file_of(lines), "file")
    assert words in str(refused.value)
    assert _content(stage, shelf) == before


async def test_notices_that_were_not_delivered_are_given_up_until_a_person_asks() -> None:
    """The second finding of F3: a command for what the journal of the file says."""
    lines = (await honest())["blocked"]
    own = channel_of(EVIL).key
    inserted(
        PREFIX + own, state="open", channel=json.dumps(EVIL), on='["onBlocked"]', tasks=False, sequence=0, part=0,
        delivered=0, failures=0, created=TIME,
    )(lines)  # fmt: skip
    found = look(file_of(lines), "file", datetime(2024, 1, 2, tzinfo=UTC))
    assert any(each.startswith("command sh -c touch PWNED (open)") for each in found.standing.notices)
    assert any("delivers them" in each for each in found.standing.let_go)
    stage, shelf = await put_back(lines)
    assert await _live_on(stage, shelf) == []
    (held,) = [each for each in await query_all(stage.tables, stage.graph_id, Range()) if each.key == PREFIX + own]
    assert held.columns["state"] == "given-up"
    listener = Listener()
    await retry(stage.tables, stage.graph_id, stage.clock.now())
    await Notifier(stage.tables, stage.clock, listener, "one").deliver(stage.graph_id)
    assert [channel.kind for channel, _ in listener.sent].count("command") >= 1


async def test_a_graph_that_has_ended_is_not_in_the_index_of_those_to_be_told() -> None:
    stage, _ = await put_back((await honest())["continued"])
    assert await query_all(stage.tables, INDEX, Range()) == []


async def test_a_file_that_changes_between_its_two_readings_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (await honest())["finished"]
    good = file_of(lines)
    on_graph(metadata='{"name":"other"}')(lines)
    other = file_of(lines).getvalue()
    stage, shelf = memory_stage(), Shelf()
    stage.clock.advance(DAY)

    def swap(plan: Any) -> None:
        good.seek(0)
        good.truncate()
        good.write(other)

    with pytest.raises(InvalidInput, match="has changed since it was looked at"):
        await restore(stage.handlers, shelf, good, "file", planned=swap)
    assert await stage.state() == "restoring"


# --- bounds --------------------------------------------------------------------------------------------------------


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def bomb(lines: list[Any], pieces: int, size: int) -> Counted:
    """Pieces of a log that are all zeros."""
    data = base64.b64encode(bytes(size)).decode()
    place = {"task": "x", "run": 0, "name": "run.log"}
    out = [json.dumps(each) for each in lines[:-1]]
    out += [json.dumps({"log": {**place, "offset": n * size}, "data": data}) for n in range(pieces)]
    return Counted(gzip.compress("\n".join([*out, "{}\n"]).encode(), compresslevel=1))


async def test_a_bomb_is_let_go_of_after_its_first_megabytes() -> None:
    """F9: pieces of 3 MB are refused at the first of them, smaller ones when they have grown too much."""
    lines = (await honest())["finished"]
    now = datetime(2024, 1, 2, tzinfo=UTC)
    with pytest.raises(InvalidInput, match="a piece of a log has at most 1,048,576 bytes"):
        look(bomb(lines, 10, 3_000_000), "file", now)
    grown = bomb(lines, 20, limits.ARCHIVE_PIECE_BYTES)
    with pytest.raises(TooLarge, match=r"more than 100 times its size when it is unpacked; --max-bytes N allows it"):
        look(grown, "file", now)
    assert grown.taken < len(grown.getvalue()), "it is not read to its end"
    with pytest.raises(TooLarge, match="unpacks to more than 20,000,000 bytes; --max-bytes allows more"):
        look(bomb(lines, 20, limits.ARCHIVE_PIECE_BYTES), "file", now, bounds=Bounds.of(max_bytes=20_000_000))
    with pytest.raises(InvalidInput, match="neither a row, a log nor the end"):
        look(bomb(lines, 20, limits.ARCHIVE_PIECE_BYTES), "file", now, bounds=Bounds.of(max_bytes=100_000_000))


async def test_rows_and_room_are_bounded() -> None:
    lines = (await honest())["finished"]
    stage, shelf = memory_stage(), Shelf()
    stage.clock.advance(DAY)
    before = _content(stage, shelf)
    with pytest.raises(TooLarge, match="has more than 5 rows; --max-rows allows more"):
        await restore(stage.handlers, shelf, file_of(lines), "file", bounds=Bounds.of(max_rows=5))
    with pytest.raises(Refused, match="and the disk of the store has 1,000 free; make room"):
        await restore(stage.handlers, shelf, file_of(lines), "file", room=1_000)
    assert _content(stage, shelf) == before


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"run": 10**30}, "a log has a run, of 0 to 1,000,000"),
        ({"run": -1}, "runs count from 0"),
        ({"run": 7}, "task “b” has a log of run 7, and no such run"),
        ({"name": "../x"}, "log name '../x'"),
        ({"task": "../x"}, "the log of task '../x'"),
        ({"task": 5}, "a log has a task and a name"),
        ({"offset": 10**12}, "a piece of a log begins at 1,000,000,000,000, and not at"),
    ],
)
async def test_logs_go_where_logs_go(place: dict[str, Any], words: str) -> None:
    lines = (await honest())["finished"]
    log = next(each for each in lines if "log" in each)
    log["log"] = {**log["log"], **place}
    stage, shelf = memory_stage(), Shelf()
    stage.clock.advance(DAY)
    with pytest.raises((InvalidInput, Refused)) as refused:
        await restore(stage.handlers, shelf, file_of(lines), "file")
    assert words in str(refused.value)
    assert shelf.held == {}
