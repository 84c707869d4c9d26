"""docs/reference/explorer.md is true: its queries, columns and edits, by `az` and by Node, on a graph that ran."""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.engine.doctor import examine_graph
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import GRAPH, task_id_of
from taskgraph.protocol.invariants.findings import Finding, Severity
from tests.e2e.processes import started, until
from tests.explorer import page
from tests.explorer import scene as scenes
from tests.explorer.clients import AZ, Node, az
from tests.explorer.scene import PARTS, Scene
from tests.upgrade.keep import FOLDER, VERSION

pytestmark = pytest.mark.campaign

ROOT: Final = Path(__file__).resolve().parents[2]
LINT: Final = f"task:{task_id_of(scenes.GRAPH, 'lint')}"
TEST: Final = f"task:{task_id_of(scenes.GRAPH, 'test')}"
SIGN: Final = f"task:{task_id_of(scenes.GRAPH, 'sign')}"
PUBLISH: Final = f"task:{task_id_of(scenes.GRAPH, 'publish')}"

AT_A_TIME: Final = 2
"""Processes of az side by side: each takes about a second of CPU."""


def own(words: Sequence[str], scene: Scene) -> list[str]:
    """The words of the page, over the table of this test."""
    place = list(words).index("-t") + 1
    assert words[place] == "taskgraph"
    return [*words[:place], scene.prefix, *words[place + 1 :]]


def printed(text: str) -> list[dict[str, str]]:
    """The rows of a table that az has printed, by the names that it gives the columns."""
    head, dashes, *lines = text.splitlines()
    spans = [found.span() for found in re.finditer("-+", dashes)]
    cut = [(start, end if number < len(spans) - 1 else None) for number, (start, end) in enumerate(spans)]
    names = [head[start:end].strip() for start, end in cut]
    return [
        dict(zip(names, [line[start:end].strip() for start, end in cut], strict=True)) for line in lines if line.strip()
    ]


# --- queries -------------------------------------------------------------------------------------------------------

JOIN: Final = f"join:{task_id_of(scenes.GRAPH, 'gather')}:"
LABELS: Final[Mapping[str, set[str]]] = {
    "What runs now, where, and since when": {"test"},
    "What is ready, and no worker has taken": {"sign"},
    "What failed for good, and why": {"lint"},
    "One task, by its label": {"part 007"},
    "What the workers of a target have still to do": {"sign"},
    "What must be done by a time, and is not done": {"test"},
    "What ended since, well or not": {"build", "lint", *PARTS},
}
OTHERS: Final = {
    "Which joins still wait, and for what",
    "What happened after event 2",
    "Which messages were set aside, of all graphs",
}


@pytest.fixture(scope="module")
def answered(scene: Scene) -> dict[str, str]:
    """What az prints for each query of the page."""
    queries = page.queries()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        done = list(pool.map(lambda query: az(own(query.words, scene), scene.folder / "az", scene.connection), queries))
    assert [each.stderr for each in done if each.returncode] == []
    return {query.title: each.stdout for query, each in zip(queries, done, strict=True)}


def test_the_page_has_ten_queries_each_said_twice_alike() -> None:
    queries = page.queries()
    assert len(queries) == 10
    assert {query.title for query in queries} == LABELS.keys() | OTHERS
    for query in queries:
        assert query.words[query.words.index("--filter") + 1] == query.filter, query.title


@pytest.mark.azurite
def test_az_answers_the_queries_about_tasks(answered: dict[str, str]) -> None:
    for title, labels in LABELS.items():
        text = answered[title]
        found = [json.loads(text)["label"]] if text.startswith("{") else [row["Label"] for row in printed(text)]
        assert sorted(found) == sorted(labels), title
    (running,) = printed(answered["What runs now, where, and since when"])
    assert running["Worker"]
    assert running["Started"] < running["LeaseUntil"]
    (failed,) = printed(answered["What failed for good, and why"])
    assert (failed["Run"], json.loads(failed["Resolution"])["reason"]) == ("1", "exit code 3")


@pytest.mark.azurite
def test_az_answers_the_queries_about_other_rows(answered: dict[str, str], scene: Scene) -> None:
    (join,) = printed(answered["Which joins still wait, and for what"])
    assert join["Join"].startswith(JOIN)
    assert json.loads(join["RequiresLeft"]) == [task_id_of(scenes.GRAPH, "test")]
    journal: dict[int, list[str]] = defaultdict(list)
    for event in scene.told("events", scenes.GRAPH, "--since", "2")["events"]:
        journal[event["sequence"]].append(event["event"])
    shown = {int(row["Sequence"]): row["Kinds"].split() for row in printed(answered["What happened after event 2"])}
    assert shown == {number: list(dict.fromkeys(kinds)) for number, kinds in journal.items()}
    assert any("graph-blocked" in kinds for kinds in shown.values())
    (poison,) = printed(answered["Which messages were set aside, of all graphs"])
    assert poison["Reason"].startswith("The type of the message is “nonsense”")
    assert poison["Key"] == scene.told("poison", "list")["messages"][0]["key"]


@pytest.mark.azurite
def test_node_answers_the_same_queries(scene: Scene, node: Node) -> None:
    def rows(condition: str) -> list[dict[str, Any]]:
        answer = node.ask(connection=scene.connection, table=scene.prefix, filter=condition)
        assert "refused" not in answer, answer
        return list(answer["rows"])

    found = {query.title: rows(query.filter) for query in page.queries()}
    for title, labels in LABELS.items():
        assert sorted(row["label"] for row in found[title]) == sorted(labels), title
    (join,) = found["Which joins still wait, and for what"]
    assert json.loads(join["requiresLeft"]) == [task_id_of(scenes.GRAPH, "test")]
    events = found["What happened after event 2"]
    assert [row["sequence"] for row in events] == list(range(3, 3 + len(events)))
    assert [row["queue"] for row in found["Which messages were set aside, of all graphs"]] == [f"{scene.prefix}-events"]
    # A bound in the middle of the run parts what ended before it from what did not: ended is a time.
    (lint,) = found["What failed for good, and why"]
    since = next(query.filter for query in page.queries() if query.title == "What ended since, well or not")
    bound = lint["ended"]["$time"]
    later = {row["label"] for row in rows(since.replace("2026-08-01T06:00:00Z", bound))}
    assert "lint" in later
    assert "build" not in later


# --- the table that az prints --------------------------------------------------------------------------------------


@pytest.mark.azurite
def test_az_prints_every_column_of_rows_of_one_kind_and_leaves_none_out(scene: Scene) -> None:
    condition = "PartitionKey eq 'nightly' and RowKey ge 'task:' and RowKey lt 'task;' and state ne 'completed'"
    query = ["storage", "entity", "query", "-t", scene.prefix, "--filter", condition, "-o", "table"]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        keyless = pool.submit(az, [*query, "--select", "label", "state"], scene.folder / "az", scene.connection)
        done = az(query, scene.folder / "az", scene.connection)
    assert done.returncode == 0, done.stderr
    rows = printed(done.stdout)
    assert {row["Label"] for row in rows} == {"lint", "test", "sign", "publish", "gather"}
    written: set[str] = set()
    for each in scene.told("rows", scenes.GRAPH, "--prefix", "task:")["rows"]:
        if each["state"] != "completed":
            written |= each.keys() - {"etag"}
    assert {name[:1].lower() + name[1:] for name in rows[0]} == {name[:1].lower() + name[1:] for name in written}
    # A run that was claimed before a slot was free has the column `ahead`; which run that is, is chance.
    assert [name for name in rows[0] if name != "Ahead"][-1] == "Deadline", "what the first row lacks comes last"
    assert "Table output unavailable" in keyless.result().stderr, "as the page says of a selection without keys"


# --- columns -------------------------------------------------------------------------------------------------------


def kind_of(partition: str, key: str) -> str:
    if partition.startswith("index:"):
        return partition
    kind, _, rest = key.partition(":")
    return "request part" if kind == "request" and ":" in rest else kind


def base_name(name: str) -> str:
    """`task` for `task2`: a long text goes on over columns."""
    return re.sub(r"\d+$", "", name)


def holds(value: Any) -> str:
    """What a value is, as a client sees it, in the words of the page."""
    if isinstance(value, dict):
        return "time" if value.keys() == {"$time"} else str(next(iter(value)))
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int) else type(value).__name__.replace("str", "text")


def wrong_columns(partition: str, key: str, columns: Mapping[str, Any]) -> list[str]:
    """Columns that the page does not know, or knows as something else."""
    kind = kind_of(partition, key)
    known = {**page.columns()[""], **page.columns()[kind]}
    wrong = []
    for name, value in columns.items():
        wanted, found = known.get(base_name(name), "not on the page"), holds(value)
        if wanted in ("list", "object") and found == "text":
            if value and base_name(name) == name and f"{name}2" not in columns:
                found = {"list": "list", "dict": "object"}.get(type(json.loads(value)).__name__, "text")
            else:
                found = wanted
        if found != wanted:
            wrong.append(f"{kind} {key}: {name} holds a {found}, and should be: {wanted}")
    return wrong


@pytest.mark.azurite
def test_the_page_knows_every_column_that_a_run_writes_and_what_it_holds(scene: Scene, node: Node) -> None:
    """As a client sees it that is not ours: no binary, no 64-bit number, lists as JSON, times as times."""
    rows = node.ask(connection=scene.connection, table=scene.prefix, filter="PartitionKey ge ''")["rows"]
    service = {"partitionKey", "rowKey", "timestamp", "etag"}
    wrong: list[str] = []
    kinds: set[str] = set()
    for row in rows:
        columns = {name: value for name, value in row.items() if name not in service}
        wrong += wrong_columns(row["partitionKey"], row["rowKey"], columns)
        kinds.add(kind_of(row["partitionKey"], row["rowKey"]))
    assert wrong == []
    assert {"task-graph", "task", "join", "fork", "event", "index:poison", "index:live", "index:graphs"} <= kinds


def kept() -> dict[str, dict[str, set[str]]]:
    """Kind -> column -> rows of the fixtures of this version that have it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in (FOLDER / VERSION).glob("*.json"):
        for partition, rows in json.loads(path.read_text("utf-8"))["partitions"].items():
            for key, columns in rows.items():
                assert wrong_columns(partition, key, columns) == []
                for name in columns:
                    found[kind_of(partition, key)][base_name(name)].add(key)
    return found


SETTERS: Final = frozenset({"set", "set_ids", "cross_off"})
"""Methods of a draft: their first word is a column."""
WRITERS: Final = frozenset({"Insert", "Merge", "Replace", "_write"})
"""Who writes a row: the keys of an object that is handed to them are columns."""
OF_THE_WIRE: Final = "storage"
"""Adapters pass columns on, and name none."""


def _keys(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Dict):
            yield from (str(key.value) for key in each.keys if isinstance(key, ast.Constant))


def written_by(text: str) -> set[str]:
    """Names of columns that a module sets: on drafts, in changes, and in what it calls columns."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(attr=word), args=[ast.Constant(value=str(name)), *_]) if word in SETTERS:
                names.add(name)
            case ast.Call(func=ast.Name(id=word) | ast.Attribute(attr=word), args=arguments) if word in WRITERS:
                names |= {key for each in arguments for key in _keys(each)}
            case ast.AnnAssign(annotation=kind, value=ast.expr() as value) if "Columns" in ast.unparse(kind):
                names |= set(_keys(value))
            case ast.Assign(targets=[ast.Subscript(value=ast.Name("columns"), slice=ast.Constant(value=str(name)))]):
                names.add(name)
    return names


def sources() -> dict[str, str]:
    """Module -> its text."""
    package = ROOT / "taskgraph"
    return {str(path.relative_to(package)): path.read_text("utf-8") for path in package.rglob("*.py")}


def writers() -> dict[str, set[str]]:
    """Module -> columns that it writes."""
    found = {name: written_by(text) for name, text in sources().items() if not name.startswith(OF_THE_WIRE)}
    return {name: columns for name, columns in found.items() if columns}


def test_the_page_knows_every_column_that_the_code_writes() -> None:
    known = page.columns()
    anywhere = set().union(*known.values())
    of_graphs = set().union(*(columns for kind, columns in known.items() if not kind.startswith("index:")))
    found = writers()
    assert {name: missing for name, columns in found.items() if (missing := columns - anywhere)} == {}
    rules = ("decide", "propagation", "extension", "conditions", "cancel", "pause", "lifecycle", "runs")
    for name in (*(f"protocol/{rule}" for rule in rules), "engine/notifier"):
        assert found[f"{name}.py"] - of_graphs == {"since"} & found[f"{name}.py"], name
    constant = re.compile(r'^[A-Z][A-Z_]+: Final = "(index:[a-z-]+)"', re.MULTILINE)
    partitions = {name for text in sources().values() for name in constant.findall(text)}
    of_features = {
        "definition",
        "name-mapping",
        "group",
        "notice",
        "limit",
        "written",
    }  # rows that no fixture of this version has
    assert set(kept()) | of_features | partitions == set(known) - {""}


def test_the_page_names_no_column_that_is_not_there() -> None:
    """Those that no fixture has are named by the code: they come with what fixtures do not do."""
    texts = [path.read_text("utf-8") for path in (ROOT / "taskgraph").rglob("*.py")]
    there = kept()
    unknown = [
        f"{kind}.{name}"
        for kind, columns in page.columns().items()
        for name in columns
        if name not in there.get(kind, {}) and not any(f'"{name}"' in text for text in texts)
    ]
    assert unknown == []


# --- edits ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """Columns that somebody sets on a row by hand."""

    row: str
    columns: Mapping[str, Any]


ALLOWED: Final[Mapping[str, Edit]] = {
    "`notBefore` of a task that is ready, to another time": Edit(
        SIGN, {"notBefore": {"$time": "2027-01-01T00:00:00.000Z"}}
    ),
    "`rerunsAllowed` and `rerunsLeft`, both by the same number": Edit(LINT, {"rerunsAllowed": 3, "rerunsLeft": 2}),
    "`deadline` to another time": Edit(TEST, {"deadline": {"$time": "2027-01-01T00:00:00.000Z"}}),
    "`task` to another object": Edit(LINT, {"task": '{"payload":{"command":["true"]}}'}),
    "`target` to another name of workers, before the task is taken": Edit(SIGN, {"target": "other"}),
    "`metadata`, `tags`, `routing` of the graph": Edit(GRAPH, {"metadata": '{"name":"later"}', "routing": "x"}),
    "a column of your own, such as `note`": Edit(TEST, {"note": "see the wiki"}),
}
FORBIDDEN: Final[Mapping[str, Edit]] = {
    "`rerunsLeft` alone": Edit(LINT, {"rerunsLeft": 2}),
    "`retriesLeft`": Edit(LINT, {"retriesLeft": 9}),
    "`rerunsLeft` to the text `0`": Edit(TEST, {"rerunsLeft": "0"}),
    "`deadline` to a text": Edit(TEST, {"deadline": "tomorrow"}),
    "`task` to what is no JSON": Edit(LINT, {"task": '{"payload":'}),
    "`label`": Edit(LINT, {"label": "lint again"}),
    "`state` of a task that failed, to pending": Edit(LINT, {"state": "pending"}),
    "`state` of a task that runs, to completed": Edit(TEST, {"state": "completed"}),
    "`requiresLeft` of a task, to `[]`": Edit(PUBLISH, {"requiresLeft": "[]"}),
    "`requires` of a task, to `[]`": Edit(PUBLISH, {"requires": "[]"}),
    "`dependents` of a task, to `[]`": Edit(LINT, {"dependents": "[]"}),
    "`failedTasks`": Edit(GRAPH, {"failedTasks": 0}),
    "`state` of the graph, to running": Edit(GRAPH, {"state": "running"}),
    "`leaseUntil`, to what is long past": Edit(TEST, {"leaseUntil": {"$time": "2026-01-01T00:00:00.000Z"}}),
    "`claim`": Edit(TEST, {"claim": "mine"}),
}


async def examined(scene: Scene) -> Sequence[Finding]:
    """What the doctor finds, but for the lease of the server that was killed, which ends while we look."""
    settings = read_settings(scene.connection, {"TASKGRAPH_PREFIX": scene.prefix}, cwd=scene.folder)
    async with open_app(settings) as app:
        return (await examine_graph(app.handlers, app.poison, scenes.GRAPH)).findings


class Editor:
    """Edits rows by Node, and puts back what was there."""

    def __init__(self, scene: Scene, node: Node) -> None:
        self._place = {"connection": scene.connection, "table": scene.prefix}
        self._node = node

    def _merge(self, row: str, columns: Mapping[str, Any]) -> None:
        entity = {"partitionKey": scenes.GRAPH, "rowKey": row, **columns}
        answer = self._node.ask(**self._place, merge=entity)
        assert "refused" not in answer, answer

    def make(self, edit: Edit) -> Edit:
        """Make it; gives the edit that takes it back."""
        condition = f"PartitionKey eq '{scenes.GRAPH}' and RowKey eq '{edit.row}'"
        (before,) = self._node.ask(**self._place, filter=condition)["rows"]
        self._merge(edit.row, edit.columns)
        return Edit(edit.row, {name: before[name] for name in edit.columns if name in before})

    def take_back(self, edit: Edit) -> None:
        self._merge(edit.row, edit.columns)


@pytest.mark.azurite
async def test_the_doctor_has_nothing_to_say_of_edits_that_may_be_made(scene: Scene, node: Node) -> None:
    assert page.edits(["edit", "when it counts"]).keys() == ALLOWED.keys()
    editor = Editor(scene, node)
    for name, edit in ALLOWED.items():
        back = editor.make(edit)
        findings = await examined(scene)
        editor.take_back(back)
        assert [each.text for each in findings if each.severity is Severity.WRONG] == [], name


@pytest.mark.azurite
async def test_the_doctor_says_of_other_edits_what_the_page_says(scene: Scene, node: Node) -> None:
    said = page.edits(["edit", "what `taskgraph doctor` says"])
    assert said.keys() == FORBIDDEN.keys()
    editor = Editor(scene, node)
    wrong: list[str] = []
    for name, edit in FORBIDDEN.items():
        back = editor.make(edit)
        findings = await examined(scene)
        editor.take_back(back)
        told = [f"`{each.code}`: {each.text}" for each in findings]
        if said[name].startswith("nothing"):
            expected = all(each.severity is not Severity.WRONG for each in findings)
        else:
            pattern = ".*".join(re.escape(part) for part in said[name].split("…"))
            expected = any(re.fullmatch(pattern, each) for each in told)
        if not expected:
            wrong.append(f"{name}: {told}")
    assert wrong == []
    assert [each.text for each in await examined(scene) if each.severity is Severity.WRONG] == [], "all was taken back"


@pytest.mark.azurite
def test_az_edits_as_the_page_shows_and_takes_a_zero_for_a_text(scene: Scene, node: Node) -> None:
    shown = own(page.edit_command(), scene)
    assert f"RowKey={LINT}" in shown
    zero = [*shown[: shown.index("-e") + 1], "PartitionKey=nightly", f"RowKey={SIGN}", "retriesLeft=0", "run=7"]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        words = (shown, zero)
        done = list(pool.map(lambda each: az(each, scene.folder / "az", scene.connection), words))
    assert [each.stderr for each in done if each.returncode] == []

    def row(key: str) -> dict[str, Any]:
        condition = f"PartitionKey eq 'nightly' and RowKey eq '{key}'"
        (found,) = node.ask(connection=scene.connection, table=scene.prefix, filter=condition)["rows"]
        return dict(found)

    assert (row(LINT)["rerunsAllowed"], row(LINT)["rerunsLeft"]) == (3, 2)
    assert (row(SIGN)["retriesLeft"], row(SIGN)["run"]) == ("0", 7)
    doctor = scene.run("doctor", scenes.GRAPH)
    assert doctor.returncode == 1
    assert "column retriesLeft holds '0', and should hold a whole number" in doctor.stdout
    place = {"connection": scene.connection, "table": scene.prefix}
    back = {"partitionKey": "nightly", "rowKey": SIGN, "retriesLeft": 5, "run": 0}
    assert "refused" not in node.ask(**place, merge=back)
    assert scene.run("doctor", scenes.GRAPH).returncode == 0, "the reruns that were given are nothing wrong"


@pytest.mark.azurite
def test_a_payload_that_was_mended_by_hand_is_what_the_next_run_does(scene: Scene, node: Node) -> None:
    """The last test here: the graph goes on."""
    Editor(scene, node).make(ALLOWED["`task` to another object"])
    assert scene.run("rerun", scenes.GRAPH, "lint").returncode == 0
    words = ("serve", "--worker", "2")
    with started(*words, store=scene.connection, cwd=scene.folder, TASKGRAPH_PREFIX=scene.prefix):
        until(lambda: scene.states()["lint"] == "completed", seconds=60, what="lint to complete")
    assert scene.told("task", scenes.GRAPH, "lint")["definition"] == {"payload": {"command": ["true"]}}


def test_az_is_asked_for_where_it_is_installed() -> None:
    assert AZ.parent.parent.name == ".venv-az"
    assert "$root/.venv-az" in (ROOT / "scripts" / "lib.sh").read_text("utf-8")
