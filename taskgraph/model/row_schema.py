"""Every column of every kind of row, declared once: what it holds, which rows have it, and which facts change it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from taskgraph.model.ids import GRAPH

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "text": ("text", "a text"),
    "number": ("number", "a whole number"),
    "count": ("number", "a whole number"),  # of runs: at most limits.RUN_NUMBER_MAX
    "time": ("time", "a time"),
    "boolean": ("boolean", "true or false"),
    "seconds": ("number", "a number of seconds"),
    "pause": ("number", "a number of seconds, or 0"),
    "retry-policy": ("object", "a policy for temporary failures"),
    "references": ("list", "a JSON list of references"),
    "list": ("list", "a JSON list"),
    "pieces": ("list", "a text"),  # of one list, over columns and rows
    "object": ("object", "a JSON object"),
    "task-state": ("text", "a state of a task"),
    "graph-state": ("text", "a state of a graph"),
    "request-state": ("text", "a state of a request"),
    "notice-state": ("text", "a state of a channel"),
}
"""Kind of value -> what a table explorer shows it as, and what it is in words."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one kind of row. `_TABLE` says what these are."""

    name: str
    kind: str
    needed: bool | None
    selected: str
    since: str


# Below the keys of a kind of row: since which version, then columns and what they hold. `!`: every such row has it,
# `?`: one may lack it, neither: no rule reads it, and no value is wrong. Rules look at columns in this order. Of a
# task, queries select what lists it (`*`: what a table explorer should show first), what explains why it waits (`+`),
# and what the sweep looks at (`~`).
_TABLE: Final = """
any
 0.1 schema number; operation text
task-graph
 0.1 state graph-state!; tasks, edges, failedTasks, revision number!; created time!; started, finished time?
 0.1 requires, requiresLeft references!; nameMapping, metadata, tags object?
 0.3 params object?
 0.1 digest text!; extending text?
 0.4 deferred references?
 0.3 failurePolicy text?; skippedTasks number?
 0.4 failedApart number?; groupPolicies boolean
 0.1 reason text?
 0.3 code text?
 0.4 writers number?
 0.3 cutOff text?; cancelled, deadline, nextDeadline time?
 0.4 waitsAgain, recalls, reopened number?
 0.3 held references?; heldAsked object?; holds number?; pausing references?; pausedReason text?; limits references?
 0.4 by, pausedBy text?; budget object?; budgetReached text?
 0.3 stalled time?; stalledBecause text?; stalledAt number?; priority text?; deletedIn number?
 0.1 blocked time; blockedBy, routing text
 0.2 traceparent text
 0.4 folder, deletedBy text
 0.3 stalledAfter, groups number; onStalled, schedule text; firedFor time; terminate, settling boolean
 0.4 limiting, counting boolean
 0.3 deleting, deleted, until, restoring, restored time; archive, was, because text; put, removed number
 0.4 successor text; transfer, movesTo, arrival, movesFrom, copied text; withdrawn references; marked number
 0.4 moving, moved, received, arrived time; whole, emptied boolean
task:<id>
 0.1 *+label text!; *+~state task-state!; *+~target text!; *+~run count!
 0.1 *rerunsAllowed, *rerunsLeft count!; *retriesLeft number!
 0.1 manualReruns, handBacks count?; created time!; *+~pendingSince, *+started, *+~leaseUntil time?
 0.4 ~leaseSeconds seconds?; ~leaseDoubts number?
 0.1 *resolved, *+~deadline time?
 0.3 *+~notBefore time?
 0.4 ~pauseSeconds pause?; prioritized text?
 0.3 *+~pendingTimeout seconds?; *~priority text?; *+retry retry-policy?; *+temporaryFailures count?
 0.3 *+temporaryForgiven number?
 0.1 requires, +requiresLeft, dependents references!
 0.3 +~cancel, cancelCode text?; *+~held references?; heldAsked object?; holds count?
 0.3 +~limits references?; limited text?
 0.1 *+resolution object?; *+runs list?; task object?
 0.3 *groups list?; *+when text?; optional references?; +failedBy, +skippedBy object?; +due text?; edited number?
 0.4 +failurePolicy text?
 0.1 *ended time; *+worker, ~claim, *+refusal, routing, request, digest text
 0.3 ahead boolean; workersLostMax number
 0.4 ~routingKey text
definition:<id>
 0.1 label text; task object
join:<owner>:<place> fork:<owner>:<place>
 0.1 state task-state!; requires, requiresLeft, dependents references!
 0.3 failedBy, skippedBy object?
 0.4 due text?
 0.4 tally, decidedBy text?; unsuccessful list?
 0.4 label text; needs, of, ok, bad number?; decides, then, rest, announced text?
group:<id>
 0.3 label text!; tasks number!; members pieces!; groups list?; join text?; request text
 0.4 success object?; tally text?; grows boolean; failurePolicy text?; passesOn boolean
group:<id>:<number>
 0.3 members pieces; request text
limit:graph limit:group-<id>
 0.3 max number!; inFlight references!; moved time!; label, asked text?; request text
event:<sequence>
 0.1 sequence number!; time time!; events list!; kinds text; completed number
 0.3 skipped number
 0.4 spent object
notice:<channel>
 0.3 state notice-state!; channel object!; on list!; sequence, part, delivered, failures number!
 0.3 nextTry, leaseUntil time?; tasks boolean; failingSince, created time; lastError, owner text
request:<name>
 0.1 state request-state!; kind text?; digest text!; staged time?; cursor number?; tasks number; answered time
 0.3 revision number?
 0.4 told object?; plan, by text?
 0.1 reason text
request:<name>:<part>
 0.1 text text
name-mapping:<name>:<number>
 0.1 nameMapping object
written
 0.4 params, tasks object
submitting:<fence>
 0.4 state text
index:live
 0.1 since time
index:notices
 0.3 since time
index:graphs
 0.1 graph, name text; created time; tasks number
 0.4 tags object
index:poison
 0.1 state, queue, reason, body text; failures number; setAside, replayed time
 0.4 replayedBy text
index:tombstones
 0.3 graph text; until time
index:keeping
 0.3 after text
index:cache
 0.4 graph, task, label text; run number; result boolean; time time
index:gates
 0.3 since, until, used time; reason, worker, token text; max number
 0.4 by text; seconds seconds
index:workers
 0.3 name, host, version, draining text; targets, labels, executors, running list; slots, busy, pid, every number
 0.3 since, seen time; exit boolean
 0.4 kind text; gone boolean
index:schedules
 0.3 name, cron, timezone, catchUp, overlap, firingDocument, document, digest, error, text text; active boolean
 0.3 every, keep, tasks, fired, skipped, errors number; waiting, runs list; params object
 0.3 anchor, at, next, firing, lastFired, tryAfter, created, updated time
 0.4 firedAhead time; by text
index:tokens
 0.4 role, hash, by, secret, shareSecret text; graphs list; targets list?; created, until time
index:taskcluster
 0.4 graph text
index:leads
 0.1 holder text; until time
 0.4 number, most number; since time
index:prices
 0.4 prices object; by text; updated time
index:clock
 0.4 seen, since time
"""

_ID: Final = "[A-Za-z0-9_-]{22}"
_PARTS: Final = {
    "<id>": _ID,
    "<owner>": f"(?:{_ID}|group-{_ID}|{GRAPH})",
    "<place>": "[A-Za-z0-9_:-]{1,150}",
    "<sequence>": "[0-9]{10}",
    "<channel>": "[0-9a-f]{16}",
    "<name>": "[A-Za-z0-9_-]{1,64}",
    "<number>": "[0-9]{4}",
    "<part>": "[A-Za-z0-9_:-]{1,64}",
}


def row_kind(key: str) -> str:
    """The kind of a row of a graph, as `ROWS` names it."""
    kind, _, rest = key.partition(":")
    if kind in ("index", GRAPH):
        return key
    return f"{kind} part" if kind in ("group", "request") and ":" in rest else kind


def _read() -> tuple[dict[str, tuple[Column, ...]], re.Pattern[str]]:
    rows: dict[str, tuple[Column, ...]] = {}
    patterns: list[str] = []
    kinds: list[str] = []
    for line in _TABLE.strip().splitlines():
        if line[0] != " ":
            kinds = [row_kind(key) for key in line.split()]
            rows |= dict.fromkeys(kinds, ())
            if not line.startswith(("any", "index:", "submitting:")):
                patterns += [re.sub("<[a-z]+>", lambda part: _PARTS[part[0]], key) for key in line.split()]
            continue
        since, _, entries = line[1:].partition(" ")
        for entry in entries.split("; "):
            names, _, kind = entry.rpartition(" ")
            needed = kind.endswith("!") if kind[-1] in "!?" else None
            kind = kind.rstrip("!?")
            for word in names.split(", "):
                name = word.lstrip("*+~")
                column = Column(name, kind, needed, word.removesuffix(name), since)
                rows |= {each: (*rows[each], column) for each in kinds}
    return rows, re.compile("|".join(patterns))


ROWS, KEYS = _read()
"""Kind of row -> its columns (`any`: of every row, `index:…`: of the rows of that partition). KEYS: of the rows of a
graph that stands still; fences, which it has while it is being submitted, are not among them."""

# Kind of row -> the columns that rules read.
CHECKED: Final = {kind: [each for each in columns if each.needed is not None] for kind, columns in ROWS.items()}

SHOWN, EXPLAINED, WATCHED = (
    tuple(each.name for each in ROWS["task"] if use in each.selected) for use in ("*", "+", "~")
)
"""Columns of a task: to list it, to explain why it waits, and what the sweep looks at."""

USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "graph-running": ("state", "started"),
    "graph-finished": ("state", "finished", "requiresLeft"),
    "graph-blocked": ("state", "blocked", "blockedBy", "failedTasks"),
    "graph-unblocked": ("state", "blockedBy", "failedTasks"),
    "graph-cancelling": ("state", "reason"),
    "graph-cancelled": ("state", "cancelled"),
    "graph-paused": ("settling", "pausing"),
    "graph-resumed": ("held", "holds", "settling"),
    "graph-limited": ("asked", "max", "moved"),
    "graph-stalled": ("stalled", "stalledAt", "stalledBecause"),
    "graph-unstalled": ("stalledBecause",),
    "graph-budgeted": ("budget", "budgetReached"),
    "graph-warned": ("budgetReached",),
    "graph-overspent": ("budgetReached",),
    "graph-extended": ("tasks", "edges", "requires", "requiresLeft", "revision"),
    "graph-edited": (),
    "graph-changed": ("state",),
    "graph-deleting": ("state", "was", "deleting", "until", "because"),
    "graph-moving": ("state", "was", "moving", "transfer", "movesTo"),
    "graph-stays": ("state", "was", "moving", "transfer", "movesTo", "marked"),
    "graph-moved": ("state", "was", "arrived", "restoring", "whole", "marked"),
    "graph-repaired": (),
    "group-decided": ("ok", "requiresLeft", "announced"),
    "task-completed": ("state", "ended", "resolved", "resolution"),
    "task-failed": ("state", "ended", "resolved", "resolution"),
    "task-exception": ("state", "ended", "resolved", "resolution"),
    "task-cancelling": ("cancel",),
    "task-cancelled": ("state", "resolved", "resolution"),
    "task-skipped": ("state", "resolved", "resolution", "requiresLeft", "due"),
    "task-rerun": ("state", "run", "runs", "claim", "pendingSince"),
    "task-retry": ("state", "run", "runs", "claim", "pendingSince", "notBefore", "temporaryFailures"),
    "task-held": ("held", "heldAsked"),
    "task-released": ("held", "heldAsked"),
    "task-prioritized": ("priority", "prioritized"),
    "journal-gap": (),
}
"""Every kind of fact -> the columns that it mostly changes. Only add kinds: old journals are read by these."""
