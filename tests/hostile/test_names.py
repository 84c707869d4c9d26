"""Hostile names: what may not be an id is refused at every door, and what may be a label harms no terminal.

Foreign text comes to a terminal from documents (labels, metadata, tags, routing, definitions), from workers (their
names, reasons, addresses, what they refuse), from messages that were set aside, and from the output of tasks. All of it
passes through every command that could show it, with a terminal and without one; the bytes that were written are
judged. The one exception is `logs` into a pipe, whose bytes are what the task wrote, as was asked for; on a terminal
only colours of it are obeyed.
"""

import asyncio
import itertools
import json
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskgraph import Client
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.settings import read_settings
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, NotFound, TaskgraphError
from taskgraph.model.ids import GRAPH, is_graph_id, task_id_of, typed
from taskgraph.protocol.runs import CannotRun, Claim
from taskgraph.storage.tables import Insert, Merge
from tests.hostile.terminal import ALLOWED_IN_LABELS, ATTACK, dangerous, taskgraph

BAD_IDS = {
    "empty": "",
    "blank": " ",
    "quote": "it's",
    "filter": "p1' or PartitionKey ne '",
    "slash": "a/b",
    "backslash": "a\\b",
    "fragment": "a#b",
    "query": "a?b",
    "above": "..",
    "here": ".",
    "far-above": "../../etc/passwd",
    "percent": "a%2fb",
    "batch": "$batch",
    "index": "index:live",
    "long": "x" * 65,
    "longer": "x" * 600,
    "newline": "a\n",
    "nul": "a\x00b",
    "clear": "\x1b[2J",
    "hyperlink": "\x1b]8;;http://evil.example\x1b\\x",
    "right-to-left": "\u202eabc",
    "markup": "[red]x[/red]",
    "script": "<script>alert(1)</script>",
    "shell": "$(touch pwned)",
    "semicolon": "a;b",
    "umlaut": "ü",
    "emoji": "\U0001f600",
    "half": "\ud800",
    "attack": ATTACK,
}

LABELS = {
    "markup": "[red]x[/red]",
    "link": "[link=http://evil.example]y[/link]",
    "closing": "[/]",
    "script": "<script>alert(1)</script>",
    "html": "<img src=x onerror=alert(1)>&amp;",
    "shell": "$(touch pwned); `touch pwned`",
    "quotes": "it's \"quoted\" \\ 'and' more",
    "filter": "p1' or PartitionKey ne '",
    "path": "../../../etc/passwd",
    "key": "a/b\\c#d?e%2f",
    "batch": "$batch",
    "option": "--help",
    "dash": "-x",
    "space": " ",
    "right-to-left": "\u202etxt.exe",
    "separators": "a\u2028b\u2029c",
    "invisible": "\ufeff\u200b\u2060",
    "tags": "\U000e0041\U000e007f",
    "family": "👩\u200d👧",
    "long": "ẞ" * 255,
    "format": "%s %d {0} {x!r}",
    "reference": "task:x fork:y join:z task-graph",
    "all": ALLOWED_IN_LABELS[:255],
}
BAD_LABELS = {
    "empty": "",
    "long": "x" * 256,
    "nul": "a\x00",
    "newline": "a\nb",
    "clear": "\x1b[2J",
    "csi": "\x9b31m",
    "delete": "\x7f",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to run in, with a store of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("AzureWebJobsStorage", "TASKGRAPH_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(folder: Path, document: Any) -> str:
    path = folder / "graph.json"
    path.write_text(json.dumps(document), "utf-8")
    return str(path)


def files(folder: Path) -> list[str]:
    """Every file below, but the database's own."""
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(".taskgraph/taskgraph.db"))


# --- ids -----------------------------------------------------------------------------------------------------------

DOORS: dict[str, tuple[str, ...]] = {
    "submit": ("submit", "graph.json", "--id", "ID"),
    "run": ("run", "graph.json", "--id", "ID", "--executor", "noop"),
    "resume": ("run", "--id", "ID"),
    "extend": ("extend", "graph.json", "--", "ID", "graph.json"),
    "request": ("extend", "good", "graph.json", "--request", "ID"),
    "rerun": ("rerun", "--", "ID", "a"),
    "cancel": ("cancel", "--", "ID", "a"),
    "status": ("status", "--", "ID"),
    "watch": ("watch", "--", "ID"),
    "show": ("show", "--", "ID"),
    "task": ("task", "--", "ID", "a"),
    "why": ("why", "--", "ID", "a"),
    "logs": ("logs", "--", "ID", "a"),
    "events": ("events", "--", "ID"),
    "rows": ("rows", "--", "ID"),
    "doctor": ("doctor", "--", "ID"),
    "repair": ("doctor", "--repair", "--", "ID"),
}
DOORS["extend"] = ("extend", "--", "ID", "graph.json")


@pytest.mark.parametrize("door", DOORS)
def test_what_cannot_be_an_id_is_refused_at_every_door(home: Path, door: str) -> None:
    """With a sentence that names it and what an id is made of; nothing is written."""
    write(home, {"tasks": {"a": {"task": {"executor": "noop"}}}})
    assert taskgraph("submit", "graph.json", "--id", "good").code == 0
    before = taskgraph("list", "--json").out
    for name, bad in BAD_IDS.items():
        if (door, bad) == ("request", ""):
            continue  # as if it were not there
        for tty in (False, True):
            shown = taskgraph(*(bad if word == "ID" else word for word in DOORS[door]), tty=tty)
            assert shown.code == failures.INVALID, (name, shown)
            assert "1 to 64 letters, digits, - and _" in shown.text, (name, shown)
            assert dangerous(shown.out + shown.err) == [], (name, shown)
    assert taskgraph("list", "--json").out == before
    assert files(home) == ["graph.json"]


@pytest.mark.parametrize("bad", [*BAD_IDS.values(), "taskgraph-events:nothing", "taskgraph-events:../1"])
def test_no_key_of_a_message_is_a_bug(home: Path, bad: str) -> None:
    shown = taskgraph("poison", "replay", "--", bad, tty=True)
    assert (shown.code, dangerous(shown.out + shown.err)) == (failures.NOT_FOUND, [])


def test_no_label_is_a_bug(home: Path) -> None:
    """Any text may be asked for as a task."""
    write(home, {"tasks": {"a": {"task": {"executor": "noop"}}}})
    assert taskgraph("submit", "graph.json", "--id", "good").code == 0
    for bad in (*BAD_IDS.values(), *LABELS.values(), *BAD_LABELS.values()):
        for command in ("task", "why", "logs", "rerun"):
            shown = taskgraph(command, "--", "good", bad, tty=True)
            assert (shown.code, dangerous(shown.out + shown.err)) == (failures.NOT_FOUND, []), (command, bad, shown)
        shown = taskgraph("show", "good", f"--match={bad}", tty=True)
        assert (shown.code, dangerous(shown.out + shown.err)) == (0, [])
        shown = taskgraph("rows", "good", f"--prefix={bad}", tty=True)
        assert (shown.code, dangerous(shown.out + shown.err)) == (0, [])


def test_no_usage_error_carries_a_sequence(home: Path) -> None:
    typed_attack = ATTACK.replace("\x00", "")  # no system hands a NUL to a program
    for words in (
        (typed_attack,),
        ("show", "g", "--state", typed_attack),
        ("list", "--limit", typed_attack),
        ("status", "g", typed_attack),
        ("run", f"--{typed_attack}"),
        ("run", "graph.json", "--target", typed_attack),
        ("run", "graph.json", "--executor", typed_attack),
        ("run", "graph.json", "--python", typed_attack),
        ("validate", typed_attack),
        ("submit", typed_attack),
        ("list", "--store", typed_attack),
        ("list", "--store", f"sqlite:///{typed_attack}"),
        ("list", "--store", f"https://{typed_attack}.table.example"),
        ("import", "--from", "neutral", typed_attack),
        ("poison", typed_attack),
    ):
        for tty in (False, True):
            shown = taskgraph(*words, tty=tty)
            assert shown.code in (failures.DONE, failures.INVALID, failures.UNREACHABLE), (words, shown)
            assert dangerous(shown.out + shown.err) == [], (words, shown.text)


async def test_the_client_refuses_them_too(home: Path) -> None:
    graph = {"tasks": {"a": {"task": {"executor": "noop"}}}}
    async with Client(f"sqlite:///{home}/store.db") as client:
        for bad in BAD_IDS.values():
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda bad=bad: client.submit(graph, bad),
                lambda bad=bad: client.run(graph, bad),
                lambda bad=bad: client.extend(bad, graph),
                lambda bad=bad: client.extend("good", graph, request=bad),
                lambda bad=bad: client.request(bad, "r"),
                lambda bad=bad: client.request("good", bad),
                lambda bad=bad: client.status(bad),
                lambda bad=bad: client.tasks(bad),
                lambda bad=bad: client.task(bad, "a"),
                lambda bad=bad: client.why(bad, "a"),
                lambda bad=bad: client.events(bad),
                lambda bad=bad: client.rerun(bad, failed=True),
                lambda bad=bad: client.wait(bad, timeout_seconds=1),
                lambda bad=bad: client.logs(bad, "a"),
                lambda bad=bad: client.result(bad, "a"),
            ]
            for number, call in enumerate(calls):
                with pytest.raises(InvalidInput) as caught:
                    await call()
                assert "1 to 64 letters, digits" in str(caught.value), number
                assert str(caught.value).isprintable()
        assert await client.graphs() == []


def test_the_ids_of_the_list_are_none() -> None:
    assert not any(map(is_graph_id, BAD_IDS.values()))


# --- labels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", BAD_LABELS.values(), ids=BAD_LABELS.keys())
def test_what_cannot_be_a_label_is_refused_with_its_place(home: Path, label: str) -> None:
    file = write(home, {"tasks": {label: {"task": {}}, "b": {"requires": [label], "task": {}}}})
    for words in (("validate", file), ("submit", file), ("plan", file), ("run", file)):
        for tty in (False, True):
            shown = taskgraph(*words, tty=tty)
            assert shown.code == failures.INVALID
            assert dangerous(shown.out + shown.err) == [], shown.text
            assert f"{file}:1: /tasks/" in shown.text.replace("\x1b[1m", "")
    told = json.loads(taskgraph("validate", "--json", file).out)["files"][0]["problems"]
    assert {each["code"] for each in told} & {"label", "too-long", "bad-form", "empty"}
    assert all(each["remedy"] for each in told)
    assert not Path(home, ".taskgraph").exists() or taskgraph("list", "--json").out == b'{\n  "graphs": []\n}\n'


def hostile_graph() -> dict[str, Any]:
    """Every hostile label that may be one, all kinds of foreign text, and tasks that fail and say so."""
    tasks: dict[str, Any] = {
        label: {"task": {"executor": "noop", "payload": {"x": ATTACK, ATTACK: [ATTACK]}, "metadata": {"name": ATTACK}}}
        for label in LABELS.values()
    }
    names = list(LABELS.values())
    for before, label in itertools.pairwise(names):
        tasks[label]["requires"] = [before]
    text = ATTACK.replace("\x00", "")
    tasks["fails " + LABELS["all"][:200]] = {
        "requires": [LABELS["markup"]],
        "task": {"payload": {"command": ["printf", "%s\n%s", text, text], "env": {"X": text}, "timeout": 60}},
    }
    tasks["fails"] = {"task": {"payload": {"command": ["sh", "-c", 'printf %s "$1" >&2; exit 3', "sh", text]}}}
    tasks["cannot"] = {"task": {"payload": {"command": [text]}}}
    tasks["waits"] = {"requires": ["fails", *names[:3]], "task": {}}
    return {
        "routing": "\x1b[2J\u202e",
        "metadata": {"name": ATTACK[:200], "description": ATTACK, "owner": ATTACK[:200], "source": ATTACK},
        "tags": {ATTACK: ATTACK, "[red]": "[/red]"},
        "tasks": tasks,
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the hostile graph has run to its end, and strangers have left their words in its rows."""
    folder = tmp_path_factory.mktemp("ran")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("AzureWebJobsStorage", raising=False)
        patch.delenv("TASKGRAPH_STORE", raising=False)
        file = write(folder, hostile_graph())
        for tty, graph_id in ((True, "hostile"), (False, "piped")):
            shown = taskgraph("run", file, "--id", graph_id, "--slots", "4", tty=tty)
            assert shown.code == failures.UNSUCCESSFUL, shown.text
            assert dangerous(shown.out, live=tty) == [], graph_id
            assert dangerous(shown.err, live=tty) == [], graph_id
        asyncio.run(strangers(folder))
        yield folder


async def strangers(folder: Path) -> None:
    """What workers, handlers and other programs may have written into rows and queues."""
    async with open_app(read_settings(None, {}, cwd=folder)) as app:
        await add_a_graph(app)
        await spoil(
            app,
            "hostile",
            "fails",
            runs=json.dumps([{"run": 0, "outcome": ATTACK, "reason": ATTACK, "worker": ATTACK}]),
        )
        resolution = {"failed": True, "reason": ATTACK, "exitCode": ATTACK, "logsUrl": ATTACK, "resultUrl": ATTACK}
        await spoil(
            app, "hostile", "cannot", resolution=json.dumps(resolution), worker=ATTACK, ended=ATTACK, extra=ATTACK
        )
        event = [
            {"event": ATTACK, "label": ATTACK, "task": ATTACK, ATTACK: ATTACK},
            {"event": "task-failed", "reason": ATTACK},
        ]
        columns = {"schema": 1, "sequence": 999, "time": datetime(2030, 1, 1, tzinfo=UTC), "events": json.dumps(event)}
        await app.tables.commit("hostile", [Insert("event:0000000999", columns)])
        body = "".join(char for char in ATTACK if char > "\x1f")
        await app.queues.send(app.handlers.names.events, [body, f'{{"version":1,"type":"{body}"}}'])
        for delivery in await app.queues.receive(app.handlers.names.events, count=32, lease_seconds=30):
            await app.poison.set_aside(delivery, ATTACK)


async def add_a_graph(app: App) -> None:
    """A graph whose tasks wait, run and were given back, by the hand of a worker with a hostile name."""
    from taskgraph.documents.read import document_from_object
    from taskgraph.engine.submission import submit

    label = LABELS["all"]
    tasks = {label: {"task": {}}, "runs": {"task": {}}, "waits": {"requires": [label, "runs"], "task": {}}}
    await submit(app.handlers, "waiting", document_from_object({"tasks": tasks}))
    lease = app.clock.now() + timedelta(hours=1)
    claim = Claim(task_id_of("waiting", "runs"), 0, ATTACK[:100], ATTACK, lease)
    await app.handlers.transition("waiting", [claim, CannotRun(task_id_of("waiting", label), 0, ATTACK, ATTACK)])


async def spoil(app: App, graph_id: str, label: str, **columns: Any) -> None:
    key = GRAPH if label == GRAPH else f"task:{task_id_of(graph_id, label)}"
    (row,) = await app.tables.get(graph_id, [key])
    assert row is not None
    await app.tables.commit(graph_id, [Merge(key, row.etag, columns)])


LOOKS: dict[str, tuple[str, ...]] = {
    "list": ("list",),
    "status": ("status", "hostile"),
    "status-waiting": ("status", "waiting"),
    "watch": ("watch", "hostile"),
    "watch-waiting": ("watch", "waiting", "--timeout", "0"),
    "show": ("show", "hostile"),
    "show-match": ("show", "hostile", "--match", "[red]"),
    "show-waiting": ("show", "waiting"),
    "task-fails": ("task", "hostile", "fails"),
    "task-cannot": ("task", "hostile", "cannot"),
    "task-runs": ("task", "waiting", "runs"),
    "why": ("why", "hostile", "waits"),
    "why-cannot": ("why", "hostile", "cannot"),
    "why-waiting": ("why", "waiting", "waits"),
    "events": ("events", "hostile"),
    "rows": ("rows", "hostile"),
    "rows-waiting": ("rows", "waiting"),
    "doctor": ("doctor", "hostile"),
    "doctor-waiting": ("doctor", "waiting"),
    "doctor-all": ("doctor",),
    "validate": ("validate", "graph.json"),
    "plan": ("plan", "graph.json", "--full"),
    "mermaid": ("plan", "graph.json", "--format", "mermaid"),
    "dot": ("plan", "graph.json", "--format", "dot"),
    "poison": ("poison", "list"),
    "rerun": ("rerun", "hostile", "waits"),
    "cancel": ("cancel", "hostile", "fails"),
    "extend": ("extend", "hostile", "graph.json"),
    "verbose": ("task", "hostile", "no such task", "-vv"),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("tty", [False, True], ids=["pipe", "terminal"])
def test_no_foreign_text_steers_a_terminal(ran: Path, monkeypatch: pytest.MonkeyPatch, look: str, tty: bool) -> None:
    monkeypatch.chdir(ran)
    shown = taskgraph(*LOOKS[look], tty=tty)
    assert shown.code != failures.BUG, shown.text
    assert dangerous(shown.out, live=look.startswith("watch"), colours=tty) == []
    assert dangerous(shown.err, live=look.startswith("watch"), colours=tty) == []


JSON_LOOKS = [name for name in LOOKS if name not in ("mermaid", "dot", "watch", "watch-waiting")]


@pytest.mark.parametrize("look", JSON_LOOKS)
@pytest.mark.parametrize("tty", [False, True], ids=["pipe", "terminal"])
def test_json_is_as_harmless_and_loses_nothing(
    ran: Path, monkeypatch: pytest.MonkeyPatch, look: str, tty: bool
) -> None:
    monkeypatch.chdir(ran)
    shown = taskgraph(*LOOKS[look], "--json", tty=tty)
    assert dangerous(shown.out, colours=False) == []
    assert dangerous(shown.err, colours=tty) == []
    found = json.loads(shown.out)
    if look == "show":
        assert {each["label"] for each in found["tasks"]} == set(hostile_graph()["tasks"])
    if look == "status":
        assert found["tags"][ATTACK] == ATTACK


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS.keys())
def test_every_hostile_label_can_be_asked_for(ran: Path, monkeypatch: pytest.MonkeyPatch, label: str) -> None:
    monkeypatch.chdir(ran)
    for tty in (False, True):
        for command in ("task", "why", "logs", "rerun"):
            shown = taskgraph(command, "--", "hostile", label, tty=tty)
            assert shown.code in (0, failures.NOT_FOUND, failures.CONFLICT), shown.text
            assert dangerous(shown.out + shown.err, colours=tty) == [], (command, shown.text)
    told = json.loads(taskgraph("task", "--json", "--", "hostile", label).out)
    assert (told["label"], told["state"]) == (label, "completed")
    assert told["definition"]["payload"] == {"x": ATTACK, ATTACK: [ATTACK]}


def test_logs_keep_colours_on_a_terminal_and_all_bytes_in_a_pipe(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of a task is what is asked for: a pipe gets it unchanged, a terminal obeys nothing but its colours."""
    monkeypatch.chdir(ran)
    text = ATTACK.replace("\x00", "")
    piped = taskgraph("logs", "hostile", "fails")
    assert piped.out == text.encode()
    shown = taskgraph("logs", "hostile", "fails", tty=True)
    told = shown.out.decode()
    assert "\x1b[5;7mblink" in told, "colours and their like are kept"
    assert dangerous(told.replace("\x1b[5;7m", "").replace("\t", "").encode()) == []
    assert told.endswith("\x1b[0m"), "and end with the log"
    assert json.loads(taskgraph("logs", "hostile", "fails", "--json").out)["log"] == text


def test_nothing_was_written_beside_the_store(ran: Path) -> None:
    """Labels are in no path: logs lie below their folder, by graph and taskId alone."""
    found = files(ran)
    assert [name for name in found if not name.startswith((".taskgraph/logs/", ".taskgraph/workers/"))] == [
        "graph.json"
    ]
    for name in found:
        if name.startswith(".taskgraph/logs/"):
            _, _, graph_id, task_id, run, file = name.split("/")
            assert (graph_id in ("hostile", "piped"), run, file) == (True, "0", "run.log")
            assert task_id in {task_id_of(graph_id, label) for label in hostile_graph()["tasks"]}


# --- what is told to be typed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS.keys())
def test_a_command_that_is_told_can_be_pasted(home: Path, label: str) -> None:
    """A shell gives exactly the label, or the taskId where it cannot be printed, and does nothing else."""
    task_id = task_id_of("-g", label)
    for graph_id in ("g", "-g"):
        line = typed("rerun", graph_id, label, task_id)
        assert line.isprintable()
        words = shlex.split(line)
        script = line.replace("taskgraph", "printf '%s\\n'", 1).replace("rerun", "'rerun'", 1)
        done = subprocess.run(["sh", "-c", script], cwd=home, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == words[1:]
        assert words[-1] == (label if label.isprintable() else task_id)
    assert files(home) == []


# --- keys and logs of the stores -----------------------------------------------------------------------------------


async def refuse_keys(app: App) -> None:
    for bad in (bad for name, bad in BAD_IDS.items() if name != "long"):  # which a file may be called
        for call in (
            lambda bad=bad: app.logs.append(bad, "t", 0, b"x"),
            lambda bad=bad: app.logs.append("g", bad, 0, b"x"),
            lambda bad=bad: app.logs.append("g", "t", 0, b"x", name=bad),
            lambda bad=bad: app.logs.read(bad, "t", 0),
            lambda bad=bad: app.logs.read("g", "t", 0, name=bad),
        ):
            with pytest.raises(ValueError, match=r"log"):
                await call()
        with pytest.raises(ValueError, match=r"log"):
            app.logs.url(bad, "t", 0)
    with pytest.raises(ValueError, match="runs count from 0"):
        await app.logs.append("g", "t", -1, b"x")


async def test_no_log_leaves_its_folder(home: Path) -> None:
    below = home / "some" / "where"
    below.mkdir(parents=True)
    async with open_app(read_settings(None, {}, cwd=below)) as app:
        await refuse_keys(app)
        await app.logs.append("g", "t", 0, b"x")
    assert [name for name in files(home) if "taskgraph.db" not in name] == ["some/where/.taskgraph/logs/g/t/0/run.log"]


KEYS_TAKEN = [BAD_IDS[name] for name in ("quote", "filter", "above", "here", "percent", "batch", "umlaut", "blank")]


async def keys_are_kept_apart(app: App, prefix: str) -> None:
    """Keys that a store does take name one row of one partition, as they are, in reads and in ranges."""
    from taskgraph.storage.tables import Range, query_all

    partitions = [f"{prefix}{key}" for key in KEYS_TAKEN]
    for partition in partitions:
        await app.tables.commit(partition, [Insert(key, {"x": partition + key}) for key in KEYS_TAKEN])
    for partition in partitions:
        rows = await app.tables.get(partition, KEYS_TAKEN)
        assert [row and row.columns["x"] for row in rows] == [partition + key for key in KEYS_TAKEN]
        assert {row.key for row in await query_all(app.tables, partition, Range())} == set(KEYS_TAKEN)
        for key in KEYS_TAKEN:
            wanted = Range(where={"x": (partition + key,)})
            assert [row.key for row in await query_all(app.tables, partition, wanted)] == [key]
            assert await query_all(app.tables, partition, Range(where={"x": (key + "' or x ne '",)})) == []


async def refused_keys(app: App) -> None:
    for name in (
        "empty",
        "slash",
        "backslash",
        "fragment",
        "query",
        "longer",
        "newline",
        "nul",
        "clear",
        "half",
        "emoji",
    ):
        bad = BAD_IDS[name]
        for call in (
            lambda bad=bad: app.tables.get(bad, ["a"]),
            lambda bad=bad: app.tables.get("a", [bad]),
            lambda bad=bad: app.tables.commit(bad, [Insert("a", {})]),
            lambda bad=bad: app.tables.commit("a", [Insert(bad, {})]),
        ):
            with pytest.raises((ValueError, TaskgraphError), match=r"key"):
                await call()


async def test_hostile_keys_in_a_file(home: Path) -> None:
    async with open_app(read_settings(None, {}, cwd=home)) as app:
        await keys_are_kept_apart(app, "p")
        await refused_keys(app)


@pytest.mark.azurite
async def test_hostile_keys_in_the_cloud(azurite: str, home: Path) -> None:
    async with open_app(read_settings(azurite, {}, cwd=home)) as app:
        await keys_are_kept_apart(app, "hostile")
        await refused_keys(app)
        await refuse_keys(app)
        await app.logs.append("hostile", "t", 0, b"x")
        assert await app.logs.read("hostile", "t", 0) == b"x"
        assert app.logs.url("hostile", "t", 0).endswith("/taskgraph-logs/hostile/t/0/run.log")


@pytest.mark.azurite
async def test_hostile_labels_in_the_cloud(azurite: str, home: Path) -> None:
    """Labels are in columns and never in keys: the same graph runs there."""
    graph = hostile_graph()
    graph["tasks"] = {label: node for label, node in graph["tasks"].items() if label in LABELS.values()}
    async with Client(azurite) as client:
        status = await client.run(graph, timeout_seconds=100)
        assert (status.state, status.tags) == ("finished", graph["tags"])
        for label in LABELS.values():
            assert (await client.task(status.graph_id, label)).status.label == label
        with pytest.raises(NotFound):
            await client.task(status.graph_id, BAD_LABELS["clear"])


def test_limits_of_labels() -> None:
    assert max(map(len, LABELS.values())) == limits.LABEL_CHARS_MAX
