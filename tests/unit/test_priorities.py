"""The levels of tasks: what ageing makes of them, and whose turn it is."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskgraph.interfaces.cli.graph_options import GraphOptions
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.names import QueueNames
from taskgraph.model.priorities import LEVELS, column, has_risen, in_turn, level_now, level_of, rank

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


def ago(steps: float) -> datetime:
    return NOW - timedelta(seconds=steps * limits.AGE_SECONDS)


@pytest.mark.parametrize(
    ("level", "steps", "used", "counts_as"),
    [
        ("lowest", 0.99, LEVELS, "lowest"),
        ("lowest", 1, LEVELS, "low"),
        ("lowest", 2, LEVELS, "normal"),
        ("lowest", 4, LEVELS, "highest"),
        ("lowest", 400, LEVELS, "highest"),
        ("highest", 400, LEVELS, "highest"),
        ("normal", 1, LEVELS, "high"),
        ("normal", 1, (), "normal"),  # nobody is above
        ("normal", 1, ("low",), "normal"),
        ("normal", 2, ("high",), "high"),
        ("low", 3, ("low", "highest"), "highest"),
        ("low", 2, ("low", "highest"), "normal"),  # it has come as far as `high`, which nobody uses
        ("lowest", 1, ("lowest",), "lowest"),
        ("lowest", 2, ("lowest",), "normal"),
        ("low", -5, LEVELS, "low"),  # clocks differ
    ],
)
def test_a_task_counts_one_level_higher_for_each_age_and_never_one_that_nobody_uses(
    level: str, steps: float, used: tuple[str, ...], counts_as: str
) -> None:
    assert level_now(level, ago(steps), NOW, used) == counts_as


def test_what_was_never_ready_has_no_age() -> None:
    assert level_now("low", None, NOW) == "low"


def test_a_rise_is_seen_by_one_round_at_least_and_by_two_at_most() -> None:
    """Rounds come every so often, a quarter more or less."""
    for shift in range(30):
        rounds = [n * 30.0 + shift for n in range(60)]
        seen = [
            seconds
            for seconds in rounds
            if has_risen("lowest", NOW, NOW + timedelta(seconds=seconds), ("low", "lowest"), 30.0)
        ]
        for nth in (1, 2):
            moment = nth * limits.AGE_SECONDS
            assert 1 <= sum(moment <= each < moment + limits.AGE_SECONDS for each in seen) <= 2, (shift, seen)
        assert all(each < 2 * limits.AGE_SECONDS + 60 for each in seen)  # it has come as far as it can


def test_a_row_says_its_level_where_that_is_not_the_usual_one() -> None:
    assert [column("", ""), column("normal", "low"), column("", "low"), column("high", "low")] == [
        "",
        "",
        "low",
        "high",
    ]
    assert level_of({"priority": "high"}.get) == "high"
    assert level_of({}.get) == level_of({"priority": "urgent"}.get) == level_of({"priority": 1}.get) == "normal"
    assert [rank(each) for each in LEVELS] == [0, 1, 2, 3, 4]


def test_the_highest_level_mostly_goes_first_and_each_has_its_turn() -> None:
    firsts = Counter(in_turn(LEVELS, turn)[0] for turn in range(1, 1025))
    assert firsts == {"highest": 768, "high": 192, "normal": 48, "low": 12, "lowest": 4}
    for turn in range(1, 300):
        assert sorted(in_turn(LEVELS, turn)) == sorted(LEVELS)
        assert in_turn(["normal"], turn) == ["normal"]


def test_queues_of_levels_have_names_of_their_own_and_short_enough_ones() -> None:
    """The longest prefix and the longest target make a name that a queue may have, and none can be that of another."""
    names = QueueNames("p" * 16)
    targets = ["x", "high-x", "x-high", "max-x", "work-x", "t" * 40]
    made = [names.work(target, level) for target in targets for level in LEVELS]
    assert len(set(made)) == len(made)
    assert max(map(len, made)) <= 63
    assert names.work("x") == names.work("x", "normal") == f"{'p' * 16}-work-x"
    assert not {*names.received} & {*made}


def test_a_priority_that_is_asked_for_goes_before_that_of_the_document(tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_text(
        json.dumps({"priority": "low", "tasks": {"a": {"task": {}}, "b": {"task": {}, "priority": "lowest"}}})
    )
    said = {asked: GraphOptions(priority=asked).read(str(file))[0] for asked in (None, "high", "normal")}
    assert [document.priority for document in said.values()] == ["low", "high", ""]
    assert {document.tasks["b"].priority for document in said.values()} == {"lowest"}
    with pytest.raises(InvalidInput, match="--priority is one of highest"):
        GraphOptions(priority="urgent").read(str(file))
