"""Rows as values for people: a task, a channel, lists and objects that stand as JSON, damaged as they may be."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from taskgraph.model.columns import Value, integer, listed, object_of, seen_state, texts, time_of
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import by_target
from taskgraph.model.priorities import level_of
from taskgraph.model.states import GRAPH_ENDED, When
from taskgraph.model.timing import retry_of, temporary_used
from taskgraph.protocol import notices
from taskgraph.protocol.definitions import moment
from taskgraph.protocol.rows import SCHEMA_MAX, is_sealed
from taskgraph.queries.values import TO_BEGIN, ChannelStatus, TaskStatus
from taskgraph.storage.tables import Row

NEWER: Final = "use a newer version of taskgraph"


def is_known(row: Row) -> bool:
    """Whether this version may judge the row (P23)."""
    schema = row.columns.get("schema", 1)
    return not isinstance(schema, int) or schema <= SCHEMA_MAX or is_sealed(row.columns)


def newer_words(row: Row) -> str:
    return f"the row has schema {row.columns['schema']}, and this version knows {SCHEMA_MAX}: it is left to a newer one"


def stalled_since(columns: Mapping[str, Value]) -> datetime | None:
    """Since when a graph is marked as standing still, by its row; None for one that moves or has ended."""
    if not columns.get("stalledBecause") or columns.get("state") in GRAPH_ENDED:
        return None
    return time_of(columns, "stalled")


def _ended(columns: Mapping[str, Value]) -> datetime | None:
    """When a run ended: a text on rows that a version before 0.3 wrote."""
    value = columns.get("ended")
    if not isinstance(value, str):
        return time_of(columns, "ended")
    try:
        return moment(value)
    except ValueError:
        return None


def _temporary_left(columns: Mapping[str, Value]) -> int:
    try:
        limit = retry_of(str(columns.get("retry", ""))).limit
    except ValueError:
        return 0  # damaged: `doctor` names it
    return max(0, limit - temporary_used(columns.get))


def status_of_task(row: Row, paused: Collection[str] = ()) -> TaskStatus:
    """A task by its row. paused: targets that are, where that was looked up."""
    columns = row.columns
    held = texts(columns, "held")
    if str(columns.get("target", "default")) in paused and columns.get("state") in TO_BEGIN:
        held.append(by_target(str(columns.get("target", "default"))))
    return TaskStatus(
        task_id=row.key.removeprefix("task:"),
        label=str(columns.get("label", "")),
        state=seen_state(columns.get),
        run=integer(columns, "run"),
        target=str(columns.get("target", "default")),
        reruns_allowed=integer(columns, "rerunsAllowed"),
        reruns_left=integer(columns, "rerunsLeft"),
        retries_left=integer(columns, "retriesLeft"),
        worker=str(columns.get("worker", "")),
        pending_since=time_of(columns, "pendingSince"),
        started=time_of(columns, "started"),
        ended=_ended(columns),
        resolved=time_of(columns, "resolved"),
        lease_until=time_of(columns, "leaseUntil"),
        deadline=time_of(columns, "deadline"),
        resolution=object_of(columns, "resolution") or None,
        runs=[each for each in listed(columns, "runs") if isinstance(each, dict)],
        refusal=str(columns.get("refusal", "")),
        when=str(columns.get("when", When.ALL_COMPLETED)),
        groups=texts(columns, "groups"),
        not_before=time_of(columns, "notBefore"),
        temporary_failures=integer(columns, "temporaryFailures"),
        temporary_left=_temporary_left(columns),
        pending_timeout=timeout if isinstance(timeout := columns.get("pendingTimeout"), int | float) else None,
        priority=level_of(columns.get),
        held=tuple(held),
    )


def channel_status(row: Row) -> ChannelStatus:
    columns = row.columns
    try:
        name = notices.channel_of(object_of(columns, "channel")).display
    except IntegrityError:
        name = f"{row.key} (its channel cannot be read)"
    return ChannelStatus(
        key=row.key.removeprefix(notices.PREFIX),
        channel=name,
        state=str(columns.get("state", "")),
        on=tuple(texts(columns, "on")),
        tasks=bool(columns.get("tasks")),
        cursor=integer(columns, "sequence"),
        delivered=integer(columns, "delivered"),
        failures=integer(columns, "failures"),
        next_try=time_of(columns, "nextTry"),
        last_error=str(columns.get("lastError", "")),
    )
