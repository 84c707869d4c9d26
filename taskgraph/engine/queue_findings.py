"""Find queues of events that hold messages and are not handled: left by a change of their number, or led by no process.

Nothing is lost with them: the rows show the same in the end, or a lease ends. But it takes so much longer.
"""

from datetime import datetime, timedelta

from taskgraph.model.clock import Clock
from taskgraph.model.names import LEADS, QueueNames
from taskgraph.protocol.invariants.findings import Finding, Severity
from taskgraph.queries.event_queues import LOOK_SECONDS, NUMBER, EventQueues
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Range, Row, Tables, query_all


async def examine_queues(tables: Tables, queues: Queues, clock: Clock, names: QueueNames) -> list[Finding]:
    """Change nothing. Nothing is asked of the queues where there is one for all graphs."""
    event_queues, now = EventQueues(tables, clock, names), clock.now()
    rows = {row.key: row for row in await query_all(tables, LEADS, Range())}
    event_queues.learn(rows.get(NUMBER))
    left = event_queues.left()
    unled = [queue for queue in event_queues.received if event_queues.number > 1 and _is_unled(rows.get(queue), now)]
    found: list[Finding] = []
    for queue in (*left, *unled):
        if not (count := await queues.count(queue)):
            continue
        text = f"{count:,} messages wait there"
        if queue in left:
            code, effect = (
                "queue-left",
                "no handler receives from it any more, and the sweep moves them",
            )
            remedy = "start taskgraph serve, or run taskgraph doctor --repair"
        else:
            code, effect = "queue-unled", "no handler leads over it, so graphs do not move by them"
            remedy = "start taskgraph serve; where function apps handle events, taskgraph serve --queues 1 once"
        found.append(Finding(code, f"queue {queue}", "", Severity.DUE, text, effect, remedy))
    return found


def _is_unled(row: Row | None, now: datetime) -> bool:
    until = row.columns.get("until") if row is not None else None
    return not isinstance(until, datetime) or now - until > timedelta(seconds=LOOK_SECONDS)
