"""What a decision gives with a journal and running totals is what it gives when everything is copied and counted."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError
from taskgraph.protocol import decide as transitions
from taskgraph.protocol import together
from taskgraph.protocol.context import ClaimOffer, Context
from taskgraph.protocol.decide import Decision, Item, Need, decide
from taskgraph.protocol.extension import AcceptExtension, InsertRows, LinkTasks, RefuseRequest, request_key
from taskgraph.protocol.layout import lay_out
from taskgraph.protocol.lifecycle import Abandon, Start
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.relays import Fire, Remind
from taskgraph.protocol.rows import Draft, NeedRows, View
from taskgraph.protocol.runs import CannotRun, Claim, Completed, Failed, HandBack, LeaseLost, Renew
from taskgraph.storage.tables import Insert, Row
from tests.unit.reference_rows import PlainView, plainly_fits, plainly_told
from tests.unit.transition_rows import LATER, NOW, Rows, apply, document, rows_of, running, task_id

# --- working copies ----------------------------------------------------------------------------------------------

KEYS = ("a", "b", "c", "absent", "other")
NAMES = ("x", "y", "ids")
IDS = ("A" * 22, "B" * 22, "join:x:0", ",", "a,", ",a", '"', "\\", "é", "\x7f", "], [", "")
TEXTS = ("", "a", "b", "é" * 3, '["a"]')
LISTS = st.lists(st.sampled_from(IDS), max_size=6)


@st.composite
def loaded(draw: st.DrawFn) -> Rows:
    """Rows, one of which does not exist, with lists as this program writes them and as others may."""
    rows: Rows = {"absent": None}
    for key in ("a", "b", "c"):
        columns: dict[str, Any] = {"x": draw(st.sampled_from(TEXTS)), "y": draw(st.sampled_from([0, 1, True]))}
        style: dict[str, Any] = draw(st.sampled_from([{"separators": (",", ":")}, {}, {"ensure_ascii": False}]))
        text = json.dumps(draw(LISTS), **style)
        columns["ids"] = draw(st.sampled_from([text, text, text, f" {text} ", "[1]", "{", "{}", ""]))
        rows[key] = Row(key, f"e-{key}", columns)
    return rows


STEPS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(KEYS), st.sampled_from(NAMES[:2]), st.sampled_from([*TEXTS, 0, 1])),
    st.tuples(st.just("set"), st.sampled_from(KEYS), st.just("ids"), st.sampled_from(['["a"]', "[1]", "[ ]", ""])),
    st.tuples(st.just("set_ids"), st.sampled_from(KEYS), st.just("ids"), LISTS),
    st.tuples(st.just("take"), st.sampled_from(KEYS), st.just("ids"), st.sampled_from(IDS)),
    st.tuples(st.just("ids"), st.sampled_from(KEYS), st.just("ids"), st.none()),
    st.tuples(
        st.just("insert"),
        st.sampled_from(("absent", "new")),
        st.none(),
        st.sampled_from([{"x": "1"}, {"ids": "[]", "y": 2}]),
    ),
    st.tuples(st.just("mark"), st.none(), st.none(), st.none()),
    st.tuples(st.just("rollback"), st.none(), st.none(), st.integers(0, 3)),
)


def step(view: Any, marks: list[Any], kind: str, key: str, name: str, value: Any) -> Any:
    """One step on a view of either kind; gives what it said."""
    match kind:
        case "mark":
            marks.append(view.mark())
        case "rollback":
            if marks:
                del marks[max(1, len(marks) - value) :]  # one may go back past a mark, and never forward to it
                view.rollback(marks[-1])
        case "insert":
            if view.knows(key) and view.find(key) is not None:
                return "it is there"
            view.insert(Insert(key, value))
        case _:
            try:
                draft = view.get(key)
                if kind == "set":
                    draft.set(name, value)
                elif kind == "set_ids":
                    draft.set_ids(name, value)
                elif kind == "take":
                    return list(draft.cross_off(name, value))
                else:
                    return list(draft.ids(name))
            except (NeedRows, IntegrityError) as error:
                return repr(error)
    return None


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(loaded(), st.lists(STEPS, max_size=30))
def test_a_journal_is_as_good_as_copies(rows: Rows, steps: Sequence[Any]) -> None:
    fast, plain = View(rows), PlainView(rows)
    fast_marks: list[Any] = []
    plain_marks: list[Any] = []
    for each in steps:
        assert step(fast, fast_marks, *each) == step(plain, plain_marks, *each)
        assert [repr(change) for change in fast.changes("op")] == [repr(change) for change in plain.changes("op")]
        assert [draft.key for draft in fast.changed()] == [draft.key for draft in plain.changed()]
        assert [fast.knows(key) for key in (*KEYS, "new")] == [plain.knows(key) for key in (*KEYS, "new")]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(IDS), max_size=9), st.data())
def test_a_list_that_grows_shorter_is_written_as_always(references: Sequence[str], data: st.DataObject) -> None:
    """One after the other is crossed off, in any order: the text is what the json module writes of what is left."""
    draft = Draft("a", {}, "e")
    draft.set_ids("ids", references)
    left = list(references)
    for reference in data.draw(st.permutations(IDS)):
        left = [each for each in left if each != reference]
        assert draft.cross_off("ids", reference) == left
        assert draft.ids("ids") == left
        assert draft.text("ids") == json.dumps(left, separators=(",", ":"))


# --- decisions ---------------------------------------------------------------------------------------------------


def same(rows: Rows, items: Sequence[Item], sequence: int = 1, take: ClaimOffer | None = None) -> Decision | Need:
    """The decision, which must be the one by rules alone over plain working copies: to the last letter, in order."""
    decision = decide(rows, items, now=NOW, operation="op", sequence=sequence, offer=take)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transitions, "View", PlainView)
        patch.setattr(together, "ITEMS_MIN", math.inf)
        patch.setattr(transitions, "_fits", plainly_fits)
        patch.setattr(Context, "events_text", property(plainly_told))
        plain = decide(rows, items, now=NOW, operation="op", sequence=sequence, offer=take)
    assert repr(decision) == repr(plain)
    return decision


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Requirements, some of them so many for the bounds below that joins and forks stand between."""
    names = [f"t{number}" for number in range(draw(st.integers(1, 14)))]
    return {
        name: draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=6)) if number else []
        for number, name in enumerate(names)
    }


RESOLUTIONS = (
    {"failed": False},
    {"failed": False, "note": "n" * 200},
    {"failed": False, "note": "é" * 90},
    {"failed": False, "exitCode": 0},
    {"failed": 0, "exitCode": False},  # equal, and another text
    {"failed": False, "exitCode": 0.0},
    {"failed": False, "output": {"lists": [1]}},
    {"failed": False, "cached": True},
)


def items_of(names: Sequence[str]) -> st.SearchStrategy[Item]:
    ids = st.sampled_from([task_id(name) for name in names] * 4 + [task_id("unknown")])
    run, claim = st.sampled_from((0, 0, 0, 1, 2)), st.sampled_from(("c", "c", "d"))
    completed = st.builds(Completed, ids, run, claim, st.just("ended"), st.sampled_from(RESOLUTIONS))
    claims = st.builds(Claim, ids, run, claim, st.just("w"), st.just(LATER))
    return st.one_of(
        completed,
        completed,
        claims,
        claims,
        st.builds(Failed, ids, run, claim, st.just("ended"), st.sampled_from(RESOLUTIONS), st.booleans()),
        st.builds(ManualRerun, ids, run),
        st.builds(Renew, ids, run, claim, st.just(LATER)),
        st.builds(HandBack, ids, run, claim, st.just("stop")),
        st.builds(LeaseLost, ids, run, claim, st.booleans()),
        st.builds(CannotRun, ids, run, st.just("w"), st.just("lacks")),
        st.builds(Remind, ids),
        st.builds(Fire, st.sampled_from(["join:task-graph:0", "join:none:0"])),
        st.builds(Start, st.just("digest")),
        st.builds(Abandon, st.just(LATER)),
    )


DAMAGE: tuple[dict[str, Any], ...] = (
    {"cancel": "asked"},
    {"limits": '["graph"]'},
    {"held": '["paused"]'},
    {"routingKey": "a.b"},
    {"ended": NOW},
    {"resolution": "{}"},
    {"edited": 1},
    {"notBefore": LATER},
    {"deadline": NOW},
    {"label": 7},
    {"label": 'é"\\'},
    {"dependents": '["a", "a"]'},
    {"requiresLeft": '["a","a"]'},
    {"run": False},
    {"dependents": "{"},
    {"requiresLeft": "[1]"},
    {"run": "0"},
    {"schema": 4},
    {"schema": 5},
    {"state": "running", "claim": "c"},
    {"state": "pending", "requiresLeft": "[]"},
    {"failedTasks": 1},
    {"priority": "low"},
    {"leaseSeconds": 60.0},
    {"leaseDoubts": 2},
    {"due": "ready"},
    {"failedBy": "a"},
    {"task": 7},
    {"target": "elsewhere"},
)


OFFERS = st.none() | st.builds(
    ClaimOffer,
    st.just("w"),
    st.just(LATER),
    st.just(frozenset({"default"})),
    st.sampled_from((("c",), ("c", "d"), tuple("cdefghij"))),
    st.sampled_from((bool, lambda definition: False)),
    st.sampled_from((None, 0, 1)),
    rank_max=st.sampled_from((None, 1, 2)),
    lease_seconds=st.sampled_from((0.0, 60.0)),
)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_items_over_any_rows_are_decided_alike(data: st.DataObject) -> None:
    """Bounds so low that most decisions meet one; rows that are missing, not loaded, damaged."""
    requires = data.draw(graphs())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "REQUIRES_MAX", 3)
        patch.setattr(limits, "DEPENDENTS_MAX", 3)
        rows = rows_of(requires, dict.fromkeys(requires, 1))
        for name in list(rows):
            row = rows[name]
            assert row is not None
            if data.draw(st.integers(0, 2)) == 0 and row.columns["state"] == "pending":
                rows[name] = Row(name, row.etag, {**row.columns, "state": "running", "claim": "c"})
        for name in data.draw(st.lists(st.sampled_from(list(rows)), max_size=2)):
            row = rows[name]
            assert row is not None
            rows[name] = Row(name, row.etag, {**row.columns, **data.draw(st.sampled_from(DAMAGE))})
        for name in data.draw(st.lists(st.sampled_from(list(rows)), max_size=1)):
            rows[name] = None
        patch.setattr(limits, "COMMIT_CHANGES_MAX", data.draw(st.sampled_from((2, 4, 7, 100))))
        patch.setattr(transitions, "EVENT_CHARS_MAX", event_chars := data.draw(st.sampled_from((100, 300, 30_000))))
        rest = data.draw(st.sampled_from((1_000, 3_000, 6_000, 3_000_000)))
        patch.setattr(limits, "COMMIT_BYTES_MAX", event_chars * 12 + rest)
        left: Sequence[Item] = data.draw(st.lists(items_of(list(requires)), min_size=1, max_size=12))
        for name in data.draw(st.lists(st.sampled_from(list(rows)), max_size=1)):
            same({key: row for key, row in rows.items() if key != name}, left)
        take = data.draw(OFFERS)
        for sequence in range(1, 40):
            decision = same(rows, left, sequence, take)
            if isinstance(decision, Need) or not decision.left:
                return
            rows, left = apply(rows, decision, mark=str(sequence)), decision.left


@pytest.mark.parametrize("changes_max", [3, 5, 100])
@pytest.mark.parametrize("direct", [0, 48])
def test_steps_of_an_extension_are_decided_alike(changes_max: int, direct: int) -> None:
    layout = lay_out("g", document({"x": ["a"], "y": ["x"]}).tasks, stamp="r", now=NOW, direct_leaves_max=direct)
    rows: Rows = rows_of({"a": []})
    task = rows[f"task:{task_id('a')}"]
    assert task is not None
    rows |= {row.key: None for row in layout.rows}
    rows |= {f"fork:{task_id('a')}:r-0": None, "join:task-graph:r": None}
    rows[request_key("r")] = Row(request_key("r"), "h", {"schema": 1, "state": "staged", "tasks": 2, "cursor": 0})
    whole = AcceptExtension("r", 0, 2, 2, layout.leaves, layout.top, True, layout.rows, layout.links, {})
    steps = AcceptExtension("r", 0, 2, 2, layout.leaves, layout.top, False, (), (), {})
    later: list[Item] = [InsertRows("r", 0, layout.rows), LinkTasks("r", len(layout.rows), layout.links)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "COMMIT_CHANGES_MAX", changes_max)
        for state in ("pending", "running", "completed"):
            here = {**rows, task.key: Row(task.key, task.etag, {**task.columns, "state": state, "claim": "c"})}
            completed = Completed(task_id("a"), 0, "c", "ended", {})
            batches: list[list[Item]] = [[whole, completed], [completed, whole], [steps, *later, completed]]
            batches.append([RefuseRequest("r", "no"), whole])
            for items in batches:
                same(here, items)


@pytest.mark.parametrize("changes_max", [2, 3, 100])
def test_a_graph_that_has_ended_is_opened_again_alike(changes_max: int) -> None:
    rows = running(running(rows_of({"a": [], "b": []}), "a"), "b")
    ends: list[Item] = [Completed(task_id(label), 0, "c", "ended", {}) for label in "ab"]
    again: list[Item] = [ManualRerun(task_id(label), 0) for label in "ab"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "COMMIT_CHANGES_MAX", changes_max)
        same(rows, [*ends, *again])
        left: Sequence[Item] = ends
        for sequence in range(1, 5):
            decision = same(rows, left, sequence)
            assert isinstance(decision, Decision)
            rows, left = apply(rows, decision, mark=str(sequence)), decision.left
            if not left:
                break
        same(rows, again, 9)


@pytest.mark.parametrize("count", [97, 98, 99, 100, 101, 250])
def test_full_commits_are_decided_alike(count: int) -> None:
    labels = [f"t{number}" for number in range(count)]
    rows = rows_of({label: [] for label in labels})
    for key, row in list(rows.items()):
        if row is not None and key.startswith("task:"):
            rows[key] = Row(key, row.etag, {**row.columns, "state": "running", "claim": "c"})
    note = {"failed": False, "note": "é" * 9_000}
    for resolution in ({"failed": False}, note):
        same(rows, [Completed(task_id(label), 0, "c", "ended", resolution) for label in labels])
    same(rows, [Renew(task_id(label), 0, "c", LATER) for label in labels])
