"""Groups that need k of n: what is counted, and what that decides. Two joins of the group are there for it.

The *tally* (`join:group-<id>:all`) requires the members, or pieces of it that do. A member that has ended is counted in
the commit that crosses it off: in `ok` or `bad` of the tally, and in `unsuccessful` of the row that named it, so that a
rerun can take it off again. With `ok` ≥ `needs` the group has succeeded, with `of` − `bad` < `needs` it has failed. The
*decision* (`join:group-<id>:done`) is what others require. It requires the tally, and gets the answer once: as soon as
that is decided, or (`then` = wait) when the tally fires, that is when all members have ended. The graph waits for the
tally in any case. `announced` of the tally says what the decision was given.

A rerun takes a member out of the counts. The decision is taken back with it, as any requirement is, if the counts do
not say any more what was announced, and always with `wait`. `rest` goes from `cancel` to `cancelling` with the
decision, and back when all members have ended or the decision is taken back: see `cancel.CancelUnneeded`.

Columns of pieces: `tally`, which they count for (the tally names itself), and `unsuccessful`. Of the decision:
`decidedBy`. All these rows have a schema that older versions leave alone.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from taskgraph.model.columns import Value, integer
from taskgraph.model.ids import group_of, is_piece
from taskgraph.model.json_strict import canonical_json, compact_json
from taskgraph.protocol.conditions import COMPLETED, TOO_FEW, Ending
from taskgraph.protocol.rows import Draft

if TYPE_CHECKING:
    from taskgraph.documents.nodes import Success

SCHEMA_OF_TALLIES: Final = 3
"""Version of the rows that count: older ones would pass a member on without counting it."""

SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
"""What a group may be decided to have; in the column `announced`, and in the journal."""

WAIT: Final = "wait"
CANCEL: Final = "cancel"
CANCELLING: Final = "cancelling"


def columns_of(name: str, success: "Success", members: int, decision: str) -> dict[str, Value]:
    """Of a tally that nothing has been counted for. decision: reference of the join that is given it."""
    made: dict[str, Value] = {
        "label": name,
        "needs": success.needs(members),
        "of": members,
        "ok": 0,
        "bad": 0,
        "decides": decision,
    }
    if success.waits:
        made["then"] = WAIT
    if success.cancels:
        made["rest"] = CANCEL
    return made


def written_success(columns: Mapping[str, Value]) -> str:
    """When a group has succeeded, as its row says it, by the columns of its tally; a share has become a number."""
    waits, cancels = columns.get("then") == WAIT, columns.get("rest") in (CANCEL, CANCELLING)
    written = {
        "atLeast": integer(columns, "needs"),
        "then": WAIT if waits else "go",
        "rest": CANCEL if cancels else "let",
    }
    return canonical_json(written)


def counts(row: Draft, name: str) -> bool:
    """Whether a row counts a requirement of this name for a tally: not what its own pieces pass on."""
    return bool(row.text("tally")) and not is_piece(name)


def count(row: Draft, tally: Draft, name: str, ending: Ending) -> None:
    """A member of this name has ended."""
    if ending is COMPLETED or not (ending.failed or ending.skipped):
        tally.set("ok", tally.integer("ok") + 1)
        return
    tally.set("bad", tally.integer("bad") + 1)
    row.set_ids("unsuccessful", [*row.ids("unsuccessful"), name])


def uncount(row: Draft, tally: Draft, name: str) -> None:
    """A member of this name that was counted is run again."""
    unsuccessful = row.ids("unsuccessful")
    if name in unsuccessful:
        row.set_ids("unsuccessful", [each for each in unsuccessful if each != name])
    counted = "bad" if name in unsuccessful else "ok"
    tally.set(counted, tally.integer(counted) - 1)


def decided(ok: int, bad: int, *, needs: int, of: int) -> str:
    """What so many members that completed, and that ended otherwise, decide; "" for nothing yet."""
    return SUCCEEDED if ok >= needs else FAILED if of - bad < needs else ""


def verdict(tally: Draft) -> str:
    whole = tally.integer
    return decided(whole("ok"), whole("bad"), needs=whole("needs"), of=whole("of"))


def left(tally: Draft) -> int:
    """How many members have not ended."""
    return tally.integer("of") - tally.integer("ok") - tally.integer("bad")


def stands(tally: Draft) -> bool:
    """Whether what was announced, if anything, is what the counts say."""
    announced = tally.text("announced")
    return not announced or (announced == verdict(tally) and tally.text("then") != WAIT)


def ending_announced(columns: Callable[[str], Value | None], announced: str, key: str) -> Ending:
    """What the decision is given. columns, key: of the tally."""
    if announced != FAILED:
        return COMPLETED
    cause = {"label": str(columns("label") or ""), "groupId": group_of(key), "state": TOO_FEW}
    return Ending(failed=compact_json(cause))
