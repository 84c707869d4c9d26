"""Schedules as documents: from text to what is said of a schedule, or to everything that is wrong with it."""

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskgraph.documents import texts
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.problems import PROBLEMS_MAX, Report
from taskgraph.documents.read import Given, document_from_object
from taskgraph.documents.recurrence import Times
from taskgraph.documents.schema_check import explain
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.schemas import parse_date_time


@dataclass(frozen=True, slots=True)
class ScheduleDocument:
    """What is said of a schedule; None for what is not said."""

    document: GraphDocument | None
    times: Times
    catch_up: str | None
    overlap: str | None
    keep: int | None
    active: bool | None


def read_schedule(
    text: bytes | str, *, source: str = "schedule", form: texts.Form = "json", whole: bool
) -> ScheduleDocument:
    """whole: what is left out is not as it was before, so a graph must be there. Raises InvalidGraph."""
    report = Report(source)
    said = texts.parse(text, report, form).value
    for error in itertools.islice(schemas.envelope("schedule", "document").iter_errors(said), PROBLEMS_MAX):
        explain(error, (), report, False)
    report.raise_if_any()
    if "document" not in said and (whole or "params" in said):
        report.add((), "missing", "The schedule lacks the key `document`.", "Add the graph that it submits.")
        raise report.error()
    anchor, at = (parse_date_time(said[name]) if name in said else None for name in ("anchor", "at"))
    times = Times(cron=said.get("cron"), timezone=said.get("timezone"), every=said.get("every"), anchor=anchor, at=at)
    rules = (said.get(name) for name in ("catchUp", "overlap", "keep", "active"))
    return ScheduleDocument(_graph(said, source), times, *rules)


def _graph(said: Mapping[str, Any], source: str) -> GraphDocument | None:
    if "document" not in said:
        return None
    try:
        return document_from_object(said["document"], source=source, given=Given(said.get("params", {})))
    except InvalidGraph as error:
        placed = [dataclasses.replace(each, pointer=f"/document{each.pointer}") for each in error.problems]
        raise InvalidGraph(placed, source) from error
