"""Archives that are spoilt, with their digests put right: nothing that is put back moves, and nothing leaves.

    python -m tests.hostile.archived --count 10000 [--seed N]

Each round takes an honest archive, spoils it at one to four places, puts counts and digest right, and restores it into
an empty store by the production code. It is refused, and then not one row, message or log is there; or it is accepted,
and then sweeps, handlers, workers' queues, the notifier and the keeping of the house find nothing to do for two years.
"""

import argparse
import asyncio
import gzip
import hashlib
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.read import document_from_object
from taskgraph.engine.archive import archive
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.notifier import Notifier
from taskgraph.engine.restore import restore
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused, TooLarge
from taskgraph.model.states import TASK_STORED, GraphState
from taskgraph.protocol import notices
from taskgraph.protocol.notices import Channel, Notice
from taskgraph.storage.tables import Range, query_all
from taskgraph.testing import MemoryQueues, MemoryTables
from tests.hostile.mutate import HOSTILE_TEXTS
from tests.scenarios.stage import Stage, extension, graph, memory_stage
from tests.scenarios.test_retention import Shelf

Lines = list[Any]
"""Objects, or raw bytes where a line is no longer JSON."""

DAY: Final = 24 * 3600.0
_EVIL: Final = {"command": ["sh", "-c", "touch PWNED"]}
_TIMES: Final = ("1601-01-02T00:00:00Z", "2020-01-01T00:00:00Z", "2024-01-01T00:30:00Z", "9999-12-31T23:59:59Z")
_WORDS: Final = (
    *map(str, TASK_STORED),
    *map(str, GraphState),
    "open",
    "done",
    "given-up",
    "staged",
    "accepted",
    "refused",
    "",
)
_NUMBERS: Final = (-1, 0, 1, 2, 3, 95, 2**31 - 1, -(2**31), 2**31, 10**30, 1.5, 1e999, True)
_LISTS: Final = ("requires", "requiresLeft", "dependents", "held", "limits", "inFlight", "optional", "pausing", "on")
_KEYS: Final = (
    "a", "index:live", "task:x", "task:../../x", "join:task-graph:0", "fork:x:0", "lead", "schedule:nightly",
    "permit:x", "request:r", "event:0000000099", "event:1", "notice:zz", "limit:graph", "worker:w", "task-graph",
    "group:x", "bell",
)  # fmt: skip


# --- honest archives ---------------------------------------------------------------------------------------------


async def _written(stage: Stage, shelf: Shelf) -> list[Any]:
    out = io.BytesIO()
    done = await archive(stage.handlers, shelf, stage.graph_id, out, with_logs=True)
    assert done.complete
    return [json.loads(line) for line in gzip.decompress(out.getvalue()).splitlines()]


async def _finished() -> list[Any]:
    stage, shelf = memory_stage(), Shelf()
    await stage.submit(graph({"a": [], "b": ["a"], "c": ["a", "b"]}, reruns={"b": 1}, metadata={"name": "n"}))
    held = await stage.claim("a")
    assert await stage.extend(extension({"d": ["a"]})) == "done"
    await stage.deliver(stage.completed(held))
    assert await stage.work(fails={"b": 1}) == "finished"
    await shelf.append(stage.graph_id, stage.task_id("b"), 1, b"said " * 50)
    await shelf.append(stage.graph_id, stage.task_id("b"), 1, b"{}", name="result.json")
    return await _written(stage, shelf)


async def _blocked() -> list[Any]:
    """Everything that a blocked graph may have: groups, limits, channels, deadlines, an edit, an extension, a pause."""
    stage, shelf = memory_stage(), Shelf()
    tasks: dict[str, Any] = {
        "bad": {
            "task": {"target": "linux", "payload": {"command": ["make"]}},
            "notify": {"onFailure": {"queue": "tellme"}},
        },
        "good": {"task": {}},
        "after": {"requires": ["bad", "some"], "task": {"deadline": "2030-01-01T00:00:00Z"}},
        "m": {"task": {}},
        "n": {"task": {}, "priority": "high"},
    }
    obj = {
        "tasks": tasks,
        "groups": {"some": {"tasks": ["m", "n"], "maxInFlight": 1}},
        "maxInFlight": 3,
        "deadline": "2031-01-01T00:00:00Z",
        "notify": {"onFinished": [{"queue": "graphs"}, {"webhook": "https://example.com/x"}], "onBlocked": _EVIL},
    }
    await stage.submit(document_from_object(obj))
    assert await stage.extend(extension({"more": ["after"]})) == "done"
    assert await stage.work(fails={"bad": 99}, targets=("default", "linux")) == "blocked"
    await shelf.append(stage.graph_id, stage.task_id("bad"), 0, b"failed\n")
    return await _written(stage, shelf)


async def _wide() -> list[Any]:
    stage = memory_stage()
    await stage.submit(
        graph({"bad": [], "all": ["bad", *(f"p{n}" for n in range(100))], **{f"p{n}": [] for n in range(100)}})
    )
    assert await stage.work(fails={"bad": 99}) == "blocked"
    return await _written(stage, Shelf())


async def _continued() -> list[Any]:
    stage = memory_stage()
    wanted = graph(
        {"bad": [], "after": ["bad"], "good": []}, failurePolicy="continue", notify={"onFailure": {"queue": "tellme"}}
    )
    await stage.submit(wanted)
    assert await stage.work(fails={"bad": 99}) == "finished"
    return await _written(stage, Shelf())


async def _cancelled() -> list[Any]:
    stage = memory_stage()
    await stage.submit(graph({"bad": [], "after": ["bad"], "good": []}, failurePolicy="fail-fast"))
    await stage.work(fails={"bad": 99})
    await stage.sweep()
    assert await stage.state() == "cancelled"
    return await _written(stage, Shelf())


async def honest() -> dict[str, list[Any]]:
    """Archives as they are written, as lines."""
    made = {"finished": _finished, "blocked": _blocked, "wide": _wide, "continued": _continued, "cancelled": _cancelled}
    return {name: await make() for name, make in made.items()}


# --- spoiling ----------------------------------------------------------------------------------------------------


def _rows(lines: Lines, prefix: str = "") -> list[Any]:
    return [
        each
        for each in lines
        if isinstance(each, dict) and str(each.get("row", "")).startswith(prefix) and "row" in each
    ]


def _columns(chance: random.Random, lines: Lines, prefix: str = "") -> dict[str, Any]:
    columns: dict[str, Any] = chance.choice(_rows(lines, prefix))["columns"]
    return columns


def _value(chance: random.Random) -> Any:
    makers: list[Callable[[], Any]] = [
        lambda: chance.choice(HOSTILE_TEXTS),
        lambda: chance.choice(_NUMBERS),
        lambda: chance.choice(_WORDS),
        lambda: {"time": chance.choice((*_TIMES, "never"))},
        lambda: {"double": chance.choice((0.5, -1, "x"))},
        lambda: chance.choice((None, [], {}, ["a"], "[]", "{}", '["task-graph"]', "[1]", '{"a":1}', "[" * 500)),
        lambda: "x" * chance.choice((100, 31_999, 33_000)),
    ]
    return chance.choice(makers)()


def state(chance: random.Random, lines: Lines) -> None:
    """The state of a row: another word."""
    chance.choice([each for each in _rows(lines) if "state" in each["columns"]])["columns"]["state"] = chance.choice(
        _WORDS
    )


def column(chance: random.Random, lines: Lines) -> None:
    """A column: another value, of any type."""
    columns = _columns(chance, lines)
    columns[chance.choice(list(columns))] = _value(chance)


def dropped(chance: random.Random, lines: Lines) -> None:
    """A column less."""
    columns = _columns(chance, lines)
    del columns[chance.choice(list(columns))]


def added(chance: random.Random, lines: Lines) -> None:
    """A column more that something acts upon."""
    past = {"time": chance.choice(_TIMES)}
    name, value = chance.choice(
        [
            ("due", "skip"), ("cancel", "x"), ("deadline", past), ("nextDeadline", past), ("settling", True),
            ("extending", "r"), ("pausing", '["paused"]'), ("stalledBecause", "x"), ("held", '["paused"]'),
            ("inFlight", '["x:0"]'), ("leaseUntil", past), ("claim", "c"), ("notBefore", past), ("pendingTimeout", 1),
            ("schema", 99), ("limits", '["graph"]'), ("limited", "yes"), ("limiting", True), ("nextTry", past),
            ("failurePolicy", "continue"), ("failurePolicy", "fail-fast"), ("when", "always"), ("optional", "[]"),
            ("schedule", "nightly"),
            ("heldAsked", '{"paused":[1,"x"]}'), ("PartitionKey", "x"), ("odata.etag", "x"), ("restoring", past),
            ("put", 5), ("archive", "x"), ("until", past), ("deletedIn", 3), ("cutOff", "x"), ("code", "x"),
        ]
    )  # fmt: skip
    _columns(chance, lines, chance.choice(("", "task", "task:", "task-graph")))[name] = value


def key(chance: random.Random, lines: Lines) -> None:
    """Another key."""
    chance.choice(_rows(lines))["row"] = chance.choice((*_KEYS, *HOSTILE_TEXTS))
    _sort(chance, lines)


def removed(chance: random.Random, lines: Lines) -> None:
    """A line less."""
    del lines[chance.randrange(len(lines))]


def doubled(chance: random.Random, lines: Lines) -> None:
    """A line twice, or a row twice under another key."""
    at = chance.randrange(len(lines))
    copy = deepcopy(lines[at])
    if isinstance(copy, dict) and "row" in copy and chance.random() < 0.6:
        copy["row"] = chance.choice((copy["row"][:-1] + "Q", *_KEYS))
    lines.insert(at, copy)
    _sort(chance, lines)


def swapped(chance: random.Random, lines: Lines) -> None:
    """Two lines in each other's place."""
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]


def request(chance: random.Random, lines: Lines) -> None:
    """A request that is open, or was."""
    kind = chance.choice(("", "edit"))
    columns: dict[str, Any] = {
        "schema": 1,
        "state": chance.choice(("staged", "accepted", "done", "refused")),
        "digest": "x",
    }
    columns |= {"staged": {"time": chance.choice(_TIMES)}, "document": '{"tasks":{"x":{"task":{}}}}', "parts": 1}
    if kind:
        columns["kind"] = kind
    lines.insert(1, {"row": f"request:r{chance.randrange(100)}", "columns": columns})
    if chance.random() < 0.5:
        lines.insert(2, {"row": lines[1]["row"] + ":0000", "columns": {"schema": 1, "document": "{}"}})
    _sort(chance, lines, always=True)


def channel(chance: random.Random, lines: Lines) -> None:
    """A channel for what has been, or for what comes."""
    made = chance.choice(
        (_EVIL, {"webhook": "http://169.254.169.254/"}, {"queue": "taskgraph-events"}, {"queue": "mine"})
    )
    own = notices.channel_of(made)
    columns = {
        "schema": 1,
        "state": chance.choice(("open", "open", "done", "given-up")),
        "channel": json.dumps(made),
        "on": chance.choice(('["onFinished"]', '["onBlocked","onFailure","onFinished","onSuccess"]', "[]")),
        "tasks": chance.choice((True, False)),
        "sequence": chance.choice((0, 0, 1, 5, 1000)),
        "part": chance.choice((0, 0, 1)),
        "delivered": 0,
        "failures": chance.choice((0, 3)),
        "created": {"time": _TIMES[2]},
    }
    lines[:] = [each for each in lines if not (isinstance(each, dict) and each.get("row") == notices.PREFIX + own.key)]
    lines.insert(1, {"row": notices.PREFIX + own.key, "columns": columns})
    for each in _rows(lines, "task:") if chance.random() < 0.5 else ():
        each["columns"]["notify"] = json.dumps({"onFinished": [own.key], "onFailure": [own.key]})
    _sort(chance, lines, always=True)


def log(chance: random.Random, lines: Lines) -> None:
    """A piece of a log: another place, name, run or length; or one more."""
    pieces = [each for each in lines if isinstance(each, dict) and "log" in each]
    if not pieces or chance.random() < 0.3:
        task = chance.choice(_rows(lines, "task:") or [{"row": "task:x"}])["row"][5:]
        pieces = [{"log": {"task": task, "run": 0, "name": "run.log", "offset": 0}, "data": "aGVsbG8K"}]
        lines.insert(len(lines) - 1, pieces[0])
    piece = chance.choice(pieces)
    piece["log"] = dict(piece["log"]) if isinstance(piece["log"], dict) else {"task": "x"}
    match chance.randrange(5):
        case 0:
            piece["log"]["run"] = chance.choice((*_NUMBERS, "0", None))
        case 1:
            piece["log"]["task"] = chance.choice(HOSTILE_TEXTS)
        case 2:
            piece["log"]["name"] = chance.choice((*HOSTILE_TEXTS, ".ssh", "a/b", "result.json"))
        case 3:
            piece["log"]["offset"] = chance.choice((*_NUMBERS, 5))
        case _:
            piece["data"] = chance.choice(("?", "aGVsbG8K", 5, None, "QUFB" * 500_000))


def number(chance: random.Random, lines: Lines) -> None:
    """A number: another one."""
    found = [
        (each["columns"], name)
        for each in _rows(lines)
        for name, value in each["columns"].items()
        if type(value) is int
    ]
    columns, name = chance.choice(found)
    columns[name] = chance.choice(_NUMBERS)


def relay(chance: random.Random, lines: Lines) -> None:
    """A join or fork: ready, or more than there was."""
    relays = _rows(lines, "join:") + _rows(lines, "fork:")
    if relays and chance.random() < 0.7:
        columns = chance.choice(relays)["columns"]
        columns["state"] = chance.choice(("pending", "completed", "unscheduled"))
        if chance.random() < 0.5:
            columns["requiresLeft"] = "[]"
        return
    task = chance.choice(_rows(lines, "task:") or [{"row": "task:x"}])["row"][5:]
    made = {"schema": 1, "state": "pending", "requires": "[]", "requiresLeft": "[]", "dependents": json.dumps([task])}
    lines.insert(1, {"row": f"{chance.choice(('join', 'fork'))}:{task}:{chance.randrange(3)}", "columns": made})
    _sort(chance, lines, always=True)


def edge(chance: random.Random, lines: Lines) -> None:
    """A list of references: one less, one more, or none."""
    found = [(each["columns"], name) for each in _rows(lines) for name in _LISTS if name in each["columns"]]
    columns, name = chance.choice(found)
    try:
        listed = json.loads(columns[name])
    except (ValueError, TypeError):
        listed = []
    listed = listed if isinstance(listed, list) else []
    if listed and chance.random() < 0.6:
        listed.pop(chance.randrange(len(listed)))
    else:
        listed.append(chance.choice(("task-graph", "x", *(each["row"][5:] for each in _rows(lines, "task:")[:5]))))
    columns[name] = json.dumps(listed, separators=(",", ":"))


def fact(chance: random.Random, lines: Lines) -> None:
    """The journal: a fact more, one less, or another one."""
    rows = _rows(lines, "event:")
    if not rows:
        return
    columns = chance.choice(rows)["columns"]
    words = chance.choice(("graph-finished", "graph-blocked", "graph-cancelled", "task-failed", "task-completed", "x"))
    made = {"event": words, "task": "x", "label": "x", "run": 0}
    columns["events"] = json.dumps(chance.choice(([], [made], [made] * 50, ["x"], [made, {"event": "graph-running"}])))


def head(chance: random.Random, lines: Lines) -> None:
    """The head: another graph, state or format."""
    first = lines[0]
    if isinstance(first, dict):
        name = chance.choice(("graph", "state", "format", "archive", "more"))
        first[name] = chance.choice(("other", "..", "../../x", *_WORDS, 1, 2, None, True, "index:live", "x" * 300))


def end(chance: random.Random, lines: Lines) -> None:
    """The end: what it says of itself, a signature of its own making."""
    last = lines[-1]
    if isinstance(last, dict) and isinstance(last.get("end"), dict):
        name = chance.choice(("complete", "rows", "logs", "signature", "signature", "more"))
        signature = {"key": "A" * 43 + "=", "by": "x", "at": "x", "value": "A" * 86 + "=="}
        last["end"][name] = (
            chance.choice((signature, False, None, 5, {}, "x"))
            if name == "signature"
            else chance.choice((False, None, 5, "x"))
        )
        last["kept"] = True  # not put right again


def whole(chance: random.Random, lines: Lines) -> None:
    """The graph as if it had been in another state, in all places that say so."""
    word = chance.choice(
        ("finished", "cancelled", "blocked", "running", "deleted", "deleting", "restoring", "submitting")
    )
    lines[0]["state"] = word
    for each in _rows(lines, "task-graph"):
        each["columns"]["state"] = word


def pending(chance: random.Random, lines: Lines) -> None:
    """A task that would run, as an attacker writes it: state, edges and counts agree as far as they can."""
    rows = _rows(lines, "task:")
    columns = chance.choice(rows)["columns"]
    columns["state"] = chance.choice(("pending", "running", "unscheduled"))
    columns["requiresLeft"] = "[]"
    columns["pendingSince"] = {"time": _TIMES[1]}
    columns["task"] = json.dumps({"payload": {"command": ["sh", "-c", "touch PWNED"]}})
    for name in ("claim", "worker", "leaseUntil", "resolution", "resolved", "runs"):
        columns.pop(name, None)


def raw(chance: random.Random, lines: Lines) -> None:
    """A line that is no object: bytes, an array, a number, deep nesting, very long."""
    at = chance.randrange(len(lines))
    lines[at] = chance.choice(
        (b"", b"[]", b"1", b"{", b"\xff\xfe", b"[" * 100_000, b'{"row":1}', b" " * 200_000, b'{"row":NaN}')
    )


def bomb(chance: random.Random, lines: Lines) -> None:
    """Much more than it seems: pieces of a log, long texts, many columns."""
    match chance.randrange(3):
        case 0:
            import base64

            data = base64.b64encode(bytes(limits.ARCHIVE_PIECE_BYTES)).decode()
            more = [
                {"log": {"task": "x", "run": 0, "name": "run.log", "offset": n << 20}, "data": data} for n in range(20)
            ]
            lines[-1:-1] = more
        case 1:
            _columns(chance, lines)["bomb"] = "x" * 9_000_000
        case _:
            _columns(chance, lines).update({f"c{n}": n for n in range(500)})


def _sort(chance: random.Random, lines: Lines, *, always: bool = False) -> None:
    """Rows in the order of their keys again, mostly: an attacker takes care."""
    if always or chance.random() < 0.8:
        rows = sorted(_rows(lines), key=lambda each: str(each["row"]))
        others = [each for each in lines if not (isinstance(each, dict) and "row" in each)]
        lines[:] = [*others[:1], *rows, *others[1:]]


Spoil = Callable[[random.Random, Lines], None]
KINDS: Final[Sequence[Spoil]] = (
    state, column, dropped, added, key, removed, doubled, swapped, request, channel, log, number, relay, edge, fact,
    head, end, whole, pending, raw, bomb,
)  # fmt: skip


def packed(chance: random.Random, lines: Lines) -> bytes:
    """The lines as a file, with counts and digest put right; now and then cut off or with a byte turned."""
    found = hashlib.sha256()
    out: list[bytes] = []
    last = lines[-1] if lines else None
    body = lines[:-1] if isinstance(last, dict) and "end" in last else lines
    rows = sum(isinstance(each, dict) and "row" in each for each in body)
    files = {
        str([each["log"].get(n) for n in ("task", "run", "name")])
        for each in body
        if isinstance(each, dict) and isinstance(each.get("log"), dict)
    }
    for each in body:
        data = (each if isinstance(each, bytes) else json.dumps(each, separators=(",", ":")).encode()) + b"\n"
        found.update(data)
        out.append(data)
    if isinstance(last, dict) and "end" in last:
        said = {"rows": rows, "logs": len(files), "complete": True, "sha256": found.hexdigest()}
        if last.pop("kept", None):
            said = {**said, **{name: value for name, value in last["end"].items() if name != "sha256"}}
        out.append(json.dumps({"end": said}).encode() + b"\n")
    data = gzip.compress(b"".join(out), compresslevel=1)
    damage = chance.random()
    if damage < 0.01:
        return data[: chance.randrange(len(data))]
    if damage < 0.02:
        at = chance.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    return data


# --- ruling ------------------------------------------------------------------------------------------------------


@dataclass
class Listener:
    """An outlet that takes everything, and remembers that it did."""

    sent: list[tuple[Channel, Notice]] = field(default_factory=list)

    def serves(self, channel: Channel) -> str:
        return ""

    async def send(self, channel: Channel, notice: Notice) -> None:
        self.sent.append((channel, notice))


@dataclass
class Table:
    """What became of the rounds, by kind of spoiling; a round of several kinds counts for each."""

    rounds: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    accepted_rounds: int = 0
    breaches: list[str] = field(default_factory=list)

    def text(self) -> str:
        lines = [f"{'kind':10} {'refused':>8} {'accepted':>9}"]
        lines += [f"{k.__name__:10} {self.refused[k.__name__]:8,} {self.accepted[k.__name__]:9,}" for k in KINDS]
        total = self.rounds - self.accepted_rounds
        lines.append(f"{'rounds':10} {total:8,} {self.accepted_rounds:9,}")
        lines.append(f"errors: {dict(self.reasons)}; breaches (written, moved or left): {len(self.breaches)}")
        return "\n".join([*lines, *self.breaches[:20]])


def _content(stage: Stage, shelf: Shelf) -> str:
    tables, queues = stage.tables, stage.queues
    assert isinstance(tables, MemoryTables)
    assert isinstance(queues, MemoryQueues)
    rows = {
        partition: {key: sorted((name, str(value)) for name, value in row.columns.items()) for key, row in held.items()}
        for partition, held in tables.partitions.items()
        if held
    }
    waiting = {queue: [each[3] for each in held.values()] for queue, held in queues.messages.items() if held}
    return json.dumps([rows, waiting, sorted(map(str, shelf.held))], sort_keys=True)


async def _live_on(stage: Stage, shelf: Shelf) -> list[str]:
    """Everything that a standing installation does, over two years; gives what it did to the graph."""
    listener = Listener()
    done: list[str] = []
    own = {row.key: row.columns for row in await query_all(stage.tables, stage.graph_id, Range())}
    for seconds in (0.0, 61.0, 3_700.0, 2 * DAY, 400 * DAY, 400 * DAY):
        stage.clock.advance(seconds)
        swept = await sweep(stage.handlers, logs=shelf, period_seconds=10**6)  # so long that everything is due
        done += [f"swept: {each}" for each in swept.failed]
        await stage.pump()
        await keep_house(stage.handlers, shelf)
        teller = Notifier(stage.tables, stage.clock, listener, "one")
        for row in await teller.waiting():
            done += [f"notifier: {each}" for each in (await teller.deliver(row.key, listed=row)).troubles]
        queues = stage.queues
        assert isinstance(queues, MemoryQueues)
        done += [f"sent to {queue}: {held}" for queue, held in queues.messages.items() if held]
    done += [f"sent to {each.display}: {notice.body}" for each, notice in listener.sent]
    after = {row.key: row.columns for row in await query_all(stage.tables, stage.graph_id, Range())}
    done += [
        f"moved: {each}: {own.get(each)} is now {after.get(each)}"
        for each in own | after
        if own.get(each) != after.get(each)
    ]
    return done


async def play(seed: int, originals: dict[str, list[Any]], table: Table) -> None:
    """One round."""
    chance = random.Random(seed)
    name = chance.choice(list(originals))
    lines = deepcopy(originals[name])
    kinds: list[Spoil] = []
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        kind = chance.choice(KINDS)
        try:
            kind(chance, lines)
        except (LookupError, TypeError, AttributeError):
            continue  # an earlier spoiling left nothing to spoil
        kinds.append(kind)
    data = packed(chance, lines)
    stage, shelf = memory_stage(), Shelf()
    stage.clock.advance(DAY)
    empty = _content(stage, shelf)
    table.rounds += 1
    names = {kind.__name__ for kind in kinds}
    round_ = f"seed {seed}, {name}, {sorted(names)}"
    try:
        done = await restore(stage.handlers, shelf, io.BytesIO(data), "file")
    except (InvalidInput, TooLarge, Refused) as error:
        table.refused.update(names)
        table.reasons[type(error).__name__] += 1
        if _content(stage, shelf) != empty:
            table.breaches.append(f"{round_}: refused, and written: {error}")
        return
    except Exception as error:
        table.breaches.append(f"{round_}: {type(error).__name__}: {error}")
        return
    table.accepted.update(names)
    table.accepted_rounds += 1
    stage.graph_id = done.graph_id
    try:
        acted = await _live_on(stage, shelf)
    except Exception as error:
        acted = [f"{type(error).__name__}: {error}"]
    if acted:
        table.breaches.append(f"{round_}: {'; '.join(acted)[:1500]}")


async def campaign(first: int, count: int) -> Table:
    """So many rounds, by seeds from `first` on."""
    table = Table()
    originals = await honest()
    for seed in range(first, first + count):
        await play(seed, originals, table)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(asyncio.run(campaign(asked.seed, asked.count)).text())


if __name__ == "__main__":
    main()
