"""A graph between two stores, in histories; and each rule of that left out once (P31): some history breaks."""

from collections.abc import Callable
from typing import Final

import pytest

from taskgraph.engine import transact
from taskgraph.engine import transfer as engine
from taskgraph.model.columns import Columns
from taskgraph.model.errors import IntegrityError
from taskgraph.protocol import transfer as rules
from taskgraph.storage.tables import Row
from tests.simulation.mutants import _all, _reworded, _set
from tests.simulation.transfers import hunt, play

HISTORIES_MAX: Final = 1_500

Patch = Callable[[pytest.MonkeyPatch], None]


async def _seals_nothing(side: engine.Side, graph_id: str, graph: Row, *, sealed: bool) -> Row:
    return graph


def _any_arrival(there: Row, here: Row) -> bool:
    return engine._is_coming(there)


def _now(side: engine.Side, row: Row) -> str:
    return side.handlers.clock.now().isoformat()


def _open(columns: Columns) -> bool:
    return True


_IN_MOVE: Final = "await _say(source, graph_id, Confirm(token))"
_SEEN: Final = 'if here.columns.get("state") != GraphState.MOVED or here.columns.get("transfer") != token:'

MUTANTS: Final[dict[str, Patch]] = {
    "rows are sealed before they are copied": _all(
        _set(engine, "_mark_rows", _seals_nothing), _set(engine, "is_sealed", _open)
    ),
    "rows come in sealed, and held back": _reworded(
        engine,
        "_copy",
        (
            "_relinked(source, target, graph_id, row))",
            "{**_relinked(source, target, graph_id, row), **opened(row.columns), 'held': '[]'})",
        ),
    ),
    "it is moved by the token of its departure": _reworded(
        rules, "_confirm", ('graph.text("transfer") == item.token', "True")
    ),
    "what stays gives its token up first": _all(
        _reworded(
            engine,
            "_stay",
            ("await _say(source, graph_id, Withdraw())", "pass"),
            (' or here.columns.get("transfer"):', ":"),
        ),
        _reworded(rules, "_remain", ('if graph.text("transfer"):', "if False:")),
    ),
    "it lives there when it has been seen moved": _reworded(
        engine,
        "_move",
        (_IN_MOVE, "await source.handlers.transition(graph_id, [Confirm(token)])"),
        (_SEEN, "if False:"),
    ),
    "what gives way has come by a departure that is void": _set(engine, "_is_void", _any_arrival),
    "it departs when it is held back": _reworded(
        rules,
        "_depart",
        (
            'if state in GOING and (DEPARTING not in graph.ids("held")',
            'if False and (DEPARTING not in graph.ids("held")',
        ),
    ),
    "it departs when nothing runs": _reworded(engine, "_depart", (" or await _running(source, graph_id)", "")),
    "it was not let go since that was seen": _reworded(
        rules, "_depart", ('graph.integer("holds") != item.holds', "False")
    ),
    "a hold is later than what was asked for by another clock": _set(engine, "_asked", _now),
    "what is said to a graph on its way is let go": _set(transact, "NewerSchema", IntegrityError),
}
"""Rule -> what leaves it out. Two more have a scenario (test_transfers). Rows come in under the etag of the graph row:
of 6,000 histories none breaks without it, for what a call brings in late is there already. And what runs is looked for
when all tasks are held back: of 1,500 none breaks without it, for the call has looked at that before."""


def test_a_graph_lives_in_one_store_and_each_task_runs_once() -> None:
    seen: set[str] = set()
    for seed in range(8):
        seen |= play(seed).seen.keys()
    assert {"moving / restoring", "moved / restoring", "moved / running"} <= seen


@pytest.mark.campaign
def test_nothing_breaks_while_all_rules_hold() -> None:
    assert hunt(range(HISTORIES_MAX)) == (HISTORIES_MAX, "")


@pytest.mark.parametrize("rule", MUTANTS)
def test_every_rule_can_be_left_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[rule](monkeypatch)


@pytest.mark.campaign
@pytest.mark.parametrize("rule", MUTANTS)
def test_every_rule_that_is_left_out_is_missed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[rule](monkeypatch)
    number, noticed = hunt(range(HISTORIES_MAX))
    print(f"{rule}: after {number} histories, {noticed[:150]}")
    assert noticed
