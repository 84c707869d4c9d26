"""Submissions and extensions: from text to a validated GraphDocument, or to a list of everything that is wrong.

Reading takes linear time, and recurses no deeper than limits.DOCUMENT_DEPTH_MAX. Each stage looks at what those before
have left usable: encoding, depth, syntax (these three end the reading), numbers and duplicate keys, schema, groups,
requirements, references, sizes, cycles.
"""

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from taskgraph.documents import checks, include, parameters, texts
from taskgraph.documents import groups as grouping
from taskgraph.documents.nodes import GraphDocument, GroupNode, Kind, TaskNode
from taskgraph.documents.problems import TOO_DEEP, Report
from taskgraph.documents.references import EXPAND, promised
from taskgraph.documents.schema_check import named
from taskgraph.documents.short_forms import ShortForms, is_short
from taskgraph.documents.warnings import check_keys
from taskgraph.model import json_strict, limits, priorities, timing
from taskgraph.model.budget import budget_from
from taskgraph.model.json_strict import Path
from taskgraph.model.states import FailurePolicy, When

if TYPE_CHECKING:
    from taskgraph.documents.foreach import FindFiles


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cyclic garbage meanwhile: it takes half of the time of code that makes a great many values."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Given:
    """Values of the parameters: JSON values, or parameters.Words.

    inherited: of the graph that an extension is for. open: the document keeps its `$param` objects, and none is missed.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    inherited: Mapping[str, Any] = field(default_factory=dict)
    open: bool = False


NOTHING_GIVEN: Final = Given()

_ALL_COMPLETED: Final = When.ALL_COMPLETED.value


def read_document(
    text: bytes | str,
    *,
    source: str = "document",
    kind: Kind = "graph",
    given: Given = NOTHING_GIVEN,
    form: texts.Form = "json",
    files: "FindFiles | None" = None,
    folder: include.Folder | None = None,
) -> GraphDocument:
    """Read a submission or an extension. Raises InvalidGraph with every problem.

    source: named in errors. files: what `foreach` finds files by. folder: what `include` reads files from.
    """
    report = Report(source)
    with collector_paused():
        read = texts.parse(text, report, form)
        return _document(read.value, kind, report, given, mentions=read.mentions, files=files, folder=folder)


def document_from_object(
    obj: object, *, source: str = "document", kind: Kind = "graph", given: Given = NOTHING_GIVEN
) -> GraphDocument:
    """The same checks on Python values, which are copied. Raises InvalidGraph."""
    report = Report(source)
    with collector_paused():
        copied = _copy(obj, report)
        report.raise_if_any()  # the schema would report a value that JSON does not have again, as a wrong type
        for fault in json_strict.faults(copied):
            report.add(fault.path, fault.code, fault.message, fault.remedy)
        return _document(copied, kind, report, given, mentions=True)


def read_json(text: bytes | str, *, source: str = "document") -> Any:
    """The value of a strict JSON text, without any schema. Raises InvalidGraph with what keeps it from being one."""
    report = Report(source)
    read = texts.parse(text, report)
    report.raise_if_any()
    return read.value


def _copy(obj: object, report: Report, path: Path = ()) -> Any:
    """A copy made of dicts, lists, str, int, float, bool and None. Recurses to the bound of depth, and no deeper."""
    match obj:
        case None | bool():
            return obj
        case str():
            return str(obj)
        case int():
            return int(obj)
        case float():
            return float(obj)
        case Mapping() | list() | tuple() if len(path) >= limits.DOCUMENT_DEPTH_MAX:
            report.add(path, *TOO_DEEP)
        case Mapping():
            copied = {}
            for key, member in obj.items():
                if isinstance(key, str):
                    copied[str(key)] = _copy(member, report, (*path, str(key)))
                else:
                    report.add(path, "not-json", f"A key is {_article(type(key).__name__)}.", "Keys are strings.")
            return copied
        case list() | tuple():
            return [_copy(member, report, (*path, index)) for index, member in enumerate(obj)]
        case _:
            message = f"The value is {_article(type(obj).__name__)}, which JSON does not have."
            remedy = "Pass text, numbers, booleans, None, mappings, lists or tuples; a time as RFC 3339 text."
            report.add(path, "not-json", message, remedy)
    return None


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _document(
    obj: Any,
    kind: Kind,
    report: Report,
    given: Given,
    *,
    mentions: bool,
    files: "FindFiles | None" = None,
    folder: include.Folder | None = None,
) -> GraphDocument:
    """Check a value, which is taken apart. mentions: there may be `$param` objects in it. Raises InvalidGraph."""
    parts: list[include.Part] = []
    if isinstance(obj, dict) and "include" in obj:
        parts = include.read_parts(obj, report, folder if kind == "graph" else None)
        include.merge(obj, parts, report, "params")
        mentions = mentions or any(part.mentions for part in parts)
    if parts or is_short(obj):
        _write_out(obj, kind, report, given, files, parts)
    checks.check_envelope(obj, kind, report)
    tasks = obj.get("tasks") if isinstance(obj, dict) else None
    nodes: dict[str, TaskNode] = {}
    declared: dict[str, dict[str, Any]] = {}
    unread: AbstractSet[str] = frozenset()  # labels whose definition lacks a value
    written: dict[str, dict[str, Any]] = {}
    if isinstance(obj, dict) and (mentions or given.values or "params" in obj):
        declared, unread = _put_in(obj, tasks if isinstance(tasks, dict) else {}, kind, given, report, written)
    groups: dict[str, GroupNode] = {}
    if isinstance(tasks, dict):
        for node in tasks.values():
            if isinstance(node, dict):
                node.setdefault("task", {})
        nodes, groups = _tasks_and_groups(obj, tasks, unread, kind, report)
    report.raise_if_any()
    if kind == "extension":
        return GraphDocument(nodes, groups=groups)
    return GraphDocument(
        nodes,
        obj.get("routing", ""),
        obj.get("metadata", {}),
        obj.get("tags", {}),
        str(obj.get("failurePolicy", FailurePolicy.BLOCK)),
        declared,
        groups,
        notify=obj.get("notify", {}),
        deadline=obj.get("deadline", ""),
        stalled_after=float(obj.get("stalledAfter", 0)),
        on_stalled=str(obj.get("onStalled", "")).replace("report", ""),
        max_in_flight=int(obj.get("maxInFlight", 0)),
        priority=priorities.column(obj.get("priority", "")),
        budget=budget_from(obj["budget"]) if "budget" in obj else None,
        written=written,
        sources={str(label): part.source for (key, label), part in report.parts.items() if key == "tasks"},
    )


def _write_out(
    obj: dict[str, Any],
    kind: Kind,
    report: Report,
    given: Given,
    files: "FindFiles | None",
    parts: Sequence[include.Part],
) -> None:
    """Write out the short forms of a document and of its parts, and merge these into it."""
    values = {name: value for name, value in given.values.items() if not given.open}
    # What is wrong with parameters is said later.
    known = parameters.bind(obj.get("params", {}), values, given.inherited, frozenset(), kind, Report("")).known
    for value, its_report in [(obj, report), *((part.value, part.report) for part in parts)]:
        if is_short(value):
            forms = ShortForms(its_report, known, files)
            its_report.place = forms.place
            forms.write_out(value)
    include.merge(obj, parts, report, "tasks", "groups")
    if not obj["tasks"]:
        report.raise_if_any()  # none of them is left to be looked at


def _tasks_and_groups(
    obj: Mapping[str, Any], tasks: dict[str, Any], unread: AbstractSet[str], kind: Kind, report: Report
) -> tuple[dict[str, TaskNode], dict[str, GroupNode]]:
    """Take the tasks out of a document, with its groups. unread: labels whose definition lacks a value."""
    nodes: dict[str, TaskNode] = {}
    groups: dict[str, GroupNode] = {}
    labels = names = frozenset(tasks)
    once = dict(zip(labels, labels, strict=True))  # the parser makes a text of its own for each mention of a label
    checks.check_labels(tasks, report)
    handed: AbstractSet[str] = frozenset()
    if grouped := obj.get("groups"):
        groups = checks.check_groups(grouped, labels, kind, report)
        checks.check_nesting(labels, groups, report)
        checks.check_limits(labels, groups, report, whole="maxInFlight" in obj)
        checks.check_policies(groups, report)
        names = labels.union(groups)
        once.update(zip(groups, groups, strict=True))
        handed = grouping.given(groups)
    requirements: dict[str, Sequence[str]] = {}
    policy = obj.get("failurePolicy", FailurePolicy.BLOCK) if kind == "graph" else FailurePolicy.CONTINUE
    passing = grouping.Passing(groups, policy)
    checks.check_success(groups, passing, report)
    results: list[tuple[str, list[tuple[Path, str]]]] = []  # tasks that take outputs, with places and labels
    later = promised(tasks)
    known = labels.union(later)
    form = checks.Form("task", kind, report)
    channels = checks.check_notify(obj.get("notify"), ("notify",), report) if kind == "graph" else set()
    right = form.right(tasks)
    for label, node in tasks.items():
        if label in unread:
            form.check({**node, "task": {}}, ("tasks", label))
        elif label not in right:
            form.check(node, ("tasks", label))
        if not isinstance(node, dict):
            continue
        wanted, optional = named(node.get("requires", ()))
        requirements[label] = checks.check_names(("tasks", label), "requires", wanted, names, kind, report)
        if "when" in node or optional:
            checks.check_condition(label, node, optional, policy, passing, report, handed=label in handed)
        if "notify" in node:
            channels |= checks.check_notify(node["notify"], ("tasks", label, "notify"), report)
        definition = node.get("task")
        if isinstance(definition, dict) and label not in unread:
            check_keys(label, definition, report)
            taken = checks.check_definition(label, definition, known, groups, kind, report)
            if definition.get("executor") == EXPAND:
                taken += form.check_template(label, definition, known, groups)
            if taken:
                results.append((label, [(place, later.get(used, used)) for place, used in taken]))
            if not report.count:
                requires: tuple[str, ...] = tuple(map(once.get, wanted, wanted))
                nodes[label] = TaskNode(
                    label,
                    requires,
                    int(node.get("reruns", 0)),
                    definition,
                    str(node.get("when", _ALL_COMPLETED)),
                    optional,
                    notify=node.get("notify", {}),
                    timing=timing.of_node(node),
                    active=node.get("active", True),
                    priority=node.get("priority", ""),
                )
                requirements[label] = requires
                tasks[label] = None  # the node takes its place: a large document is not kept twice
    if len(channels) > limits.CHANNELS_MAX:
        place: Path = ("notify",) if obj.get("notify") else ("tasks",)
        message = f"Notices go to {len(channels):,} different channels; {limits.CHANNELS_MAX} are allowed in a graph."
        report.add(place, "too-many", message, "Send them to one queue or webhook, which shares them out.")
    certain = requirements
    if groups:
        certain = grouping.circles(requirements, groups, certain=True) if results else {}
        requirements = grouping.circles(requirements, groups)
    checks.check_cycles(obj, nodes, requirements, report)
    if results:
        checks.check_results(results, certain, labels, groups, kind, report)
    form.close()
    return nodes, groups


def _put_in(
    obj: Mapping[str, Any],
    tasks: Mapping[str, Any],
    kind: Kind,
    given: Given,
    report: Report,
    written: dict[str, dict[str, Any]],
) -> tuple[dict[str, dict[str, Any]], AbstractSet[str]]:
    """Put the values into the tasks; gives the declarations with these, and labels of tasks that lack one.

    written: gets the definitions as they were, of the tasks that values were put into.
    """
    values: dict[str, Any] = {}
    for name, value in given.values.items():
        before = report.count
        path: Path = ("params", name)
        copied = value if isinstance(value, parameters.Words) else _copy(value, report, path)
        for fault in json_strict.faults({name: copied}):
            report.add(("params", *fault.path), fault.code, fault.message, fault.remedy)
        if report.count == before:
            values[name] = copied
    if report.count and len(values) < len(given.values):
        report.raise_if_any()  # what is said of the others would be wrong
    definitions = {label: node["task"] for label, node in tasks.items() if _has_definition(node)}
    used = parameters.names_in(definitions.values())
    own = obj.get("params", {})
    found = parameters.bind(own, values, given.inherited, used, kind, report, check=given.open)
    unread: set[str] = set()
    if used:
        replacing = parameters.Replacing(found, report, check=given.open)
        for label, task in definitions.items():
            replacing.broken = False
            made = replacing.definition(label, task)
            if replacing.broken:
                unread.add(label)
            elif made is not task:
                written[label] = task
                tasks[label]["task"] = made
    if report.count or not isinstance(own, dict):
        return {}, unread
    if given.open:
        return dict(own), unread
    return {name: {**each, "default": found.known[name]} for name, each in own.items()}, unread


def _has_definition(node: Any) -> bool:
    return isinstance(node, dict) and isinstance(node.get("task"), dict)
