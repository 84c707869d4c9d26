"""Limited tasks that stand ready: which of them begin next, and for how long one that was sent counts as inside."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from taskgraph.protocol import limited_backlog
from taskgraph.protocol.concurrency import Limit
from taskgraph.protocol.limited_backlog import SENT_SECONDS, Backlog, Waiting

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)


def waiting(minutes: int | None = 0, rank: int = 0, scopes: tuple[str, ...] = ("graph",), target: str = "t") -> Waiting:
    return Waiting(target, scopes, None if minutes is None else NOON + timedelta(minutes=minutes), rank)


def limit(most: int, *inside: str) -> Limit:
    return Limit("graph", "", most, inside, None)


def backlog(**each: Waiting) -> Backlog:
    made = Backlog()
    for task_id, one in each.items():
        made.add(task_id, 0, one)
    return made


def names(picked: list[tuple[str, int, str]]) -> str:
    return "".join(task_id for task_id, _, _ in picked)


def test_the_most_urgent_go_first_and_of_these_who_has_waited_longest() -> None:
    made = backlog(
        a=waiting(3), b=waiting(1), c=waiting(2, rank=-1), d=waiting(None), e=waiting(9, rank=-1, target="u")
    )
    assert names(made.pick({"graph": limit(4)}, 100.0)) == "cedb"
    assert made.pick({"graph": limit(9)}, 100.0) == [("a", 0, "t")]
    assert made.pick({"graph": limit(9)}, 100.0) == []


def test_what_was_sent_has_its_place_until_it_is_claimed_or_some_seconds_are_over() -> None:
    made = backlog(a=waiting(1), b=waiting(2), c=waiting(3))
    assert names(made.pick({"graph": limit(1)}, 100.0)) == "a"
    assert made.pick({"graph": limit(1)}, 101.0) == []
    assert made.was_sent("a", 0, 101.0)
    assert not made.was_sent("a", 1, 101.0)
    assert not made.was_sent("a", 0, 100.0 + SENT_SECONDS)
    assert names(made.pick({"graph": limit(2, "a:0")}, 101.0)) == "b", "it is counted once: it is inside"
    made.sent["z", 0] = (102.0, ("graph",))
    assert names(made.pick({"graph": limit(1)}, 101.0 + SENT_SECONDS)) == "", "the place of one is free, and z has it"
    del made.sent["z", 0]
    assert names(made.pick({"graph": limit(1)}, 101.0 + SENT_SECONDS)) == "c"


@pytest.mark.parametrize("run", [0, 1])
def test_what_runs_already_is_not_sent(run: int) -> None:
    made = backlog(a=waiting())
    assert names(made.pick({"graph": limit(3, f"a:{run}")}, 0.0)) == ("a" if run else "")
    assert made.waiting == {}


def test_a_task_needs_room_under_each_of_its_limits() -> None:
    made = backlog(a=waiting(1, scopes=("graph", "one")), b=waiting(2, scopes=("graph", "two")), c=waiting(3))
    assert made.scopes == {"graph", "one", "two"}
    limits = {"graph": limit(3), "one": limit(1, "x:0"), "two": limit(2, "y:0")}
    assert names(made.pick(limits, 0.0)) == "bc"
    assert names(made.pick({"graph": limit(3), "two": limit(1)}, 0.0)) == "", "what is not known has no room"
    assert names(made.pick({"graph": limit(4), "one": limit(1)}, 1.0)) == "a"
    assert made.scopes == set()


def test_one_limit_without_room_stops_nothing_that_is_not_under_it() -> None:
    made = backlog(a=waiting(1, scopes=("one",)), b=waiting(2, scopes=("two",)))
    assert names(made.pick({"one": limit(0), "two": limit(1)}, 0.0)) == "b"
    assert names(made.pick({"one": limit(1), "two": limit(1)}, 0.0)) == "a", "two is taken, by what was sent"


def test_what_could_not_begin_waits_again_and_has_no_place() -> None:
    made = backlog(a=waiting(1), b=waiting(2))
    assert names(made.pick({"graph": limit(1)}, 0.0)) == "a"
    made.add("a", 0, waiting(1))
    assert not made.was_sent("a", 0, 0.0)
    assert names(made.pick({"graph": limit(1)}, 0.0)) == "a"
    made.forget("a", 0)
    made.forget("b", 0)
    assert (made.waiting, made.sent) == ({}, {})


def test_what_is_too_much_is_looked_for_in_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_backlog, "WAITING_MAX", 2)
    made = Backlog(whole_until=7.0)
    made.add("a", 0, waiting())
    made.add("b", 0, waiting())
    assert made.whole_until == 7.0
    made.add("c", 0, waiting())
    assert (len(made.waiting), made.whole_until) == (2, 0.0)
