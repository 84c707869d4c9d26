"""Plans of graphs with groups: what requires a group requires each task in it, in counts and in waiters."""

import json
from pathlib import Path

import pytest

from taskgraph.documents.canonical import document_object
from taskgraph.documents.plan import plan, to_dot, to_json, to_mermaid, to_table
from taskgraph.documents.read import read_document
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph
from tests.unit.test_grouping import document

EXAMPLES = Path(__file__).parents[2] / "examples"

# The two tables by which groups were first described.
LOCK = """\
task    ndeps   waiters
LOCK    0       RH1,RH2,RH3,SE
RH1     1       UNLOCK
RH2     1       UNLOCK
RH3     1       UNLOCK
SE      1       UNLOCK
UNLOCK  4
"""
STAGES = """\
task    ndeps   waiters
LOCK    0       A,B
A       1       B,C,D
B       2       C,D
C       2       UNLOCK
D       2       UNLOCK
UNLOCK  2
"""


@pytest.mark.parametrize(("name", "table"), [("lock.json", LOCK), ("stages.json", STAGES)])
def test_the_examples_give_the_tables_by_which_groups_were_described(name: str, table: str) -> None:
    made = read_document((EXAMPLES / name).read_bytes())
    assert made.groups
    assert to_table(plan(made)) == table
    # and so does the same document, written and read again
    assert to_table(plan(read_document(json.dumps(document_object(made))))) == table


def test_columns_are_as_wide_as_labels_are() -> None:
    made = document({"a long label": (), "b": ("a long label",)}, {})
    assert to_table(plan(made)) == ("task            ndeps   waiters\na long label    0       b\nb               1\n")


def test_a_plan_tells_groups_and_both_numbers_of_edges() -> None:
    first, second = [f"a{number}" for number in range(20)], [f"b{number}" for number in range(20)]
    made = plan(document(dict.fromkeys([*first, *second], ()), {"first": (first, ()), "second": (second, ("first",))}))
    assert (made.edges, made.kept) == (400, 40)
    told = to_json(made)
    assert (told["edges"], told["keptEdges"]) == (400, 40)
    assert told["groups"] == {"first": first, "second": second}
    assert made.rows[0].waiters == tuple(second)
    assert made.critical_path == ("a0", "b0")


def test_pictures_show_tasks() -> None:
    made = read_document((EXAMPLES / "lock.json").read_bytes())
    assert to_mermaid(made).count("-->") == 8
    assert to_dot(made).count("->") == 8


def test_a_plan_that_would_be_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLANNED_PAIRS_MAX", 100)
    first, second = [f"a{number}" for number in range(20)], [f"b{number}" for number in range(20)]
    made = document(dict.fromkeys([*first, *second], ()), {"first": (first, ()), "second": (second, ("first",))})
    with pytest.raises(InvalidGraph, match="1 problem") as caught:
        plan(made)
    assert caught.value.problems[0].code == "too-large"
