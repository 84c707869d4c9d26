"""Submissions and extensions: from text to a validated GraphDocument, or to a list of everything that is wrong.

What this room is for: the door through which every graph comes in. A GraphDocument that leaves it obeys
`schemas/task-graph.json` and the rules that a schema cannot say: names that exist, no cycle, no key twice, sizes.
Everything here is a pure function, takes time linear in the document, and never recurses deeper than
limits.DOCUMENT_DEPTH_MAX. It never reads a clock: whether a deadline has passed is no matter of the document.

The stages, each on what the one before has left usable: encoding, depth, syntax (these three end the reading), numbers
and duplicate keys, schema, groups, requirements, references, sizes, cycles. At most PROBLEMS_MAX problems are listed,
and the rest is counted, so that one mistake made fifty thousand times does not hide another.
"""

import contextlib
import difflib
import functools
import gc
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from taskgraph.documents import graph_algorithms, parameters
from taskgraph.documents import groups as grouping
from taskgraph.documents import results as outputs
from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode
from taskgraph.documents.problems import PROBLEMS_MAX, Report, nearest
from taskgraph.documents.schema_check import (
    CHANNEL_KINDS,
    COMMAND_KEYS,
    RESULT,
    SUBS,
    SUBS_PREFIX,
    TASK_KEYS,
    explain,
    group_is_plain,
    is_label,
    named,
    node_is_plain,
)
from taskgraph.model import json_pointer, json_strict, limits, priorities, schemas, timing
from taskgraph.model.errors import InvalidGraph, InvalidInput, Problem
from taskgraph.model.json_pointer import pointer
from taskgraph.model.json_strict import Path, canonical_json, show
from taskgraph.model.placement import DEFAULT_TARGET
from taskgraph.model.states import FailurePolicy, When
from taskgraph.model.utf16 import utf16_units

__all__ = [
    "BUILT_IN_EXECUTORS",
    "DEFAULT_TARGET",
    "PROBLEMS_MAX",
    "Kind",
    "canonical_json",
    "collector_paused",
    "content_hash",
    "document_from_object",
    "document_object",
    "external_labels",
    "nearest",
    "node_digest",
    "node_digests",
    "read_document",
    "read_json",
    "references",
    "substitute",
    "warnings",
]

Kind = Literal["graph", "extension"]

BUILT_IN_EXECUTORS: Final = frozenset({"command", "noop", "python", "sleep"})
_OWN_QUEUES: Final = "taskgraph-"
_SUBS_KEY: Final = f'"{SUBS}"'  # in JSON; a text that lacks them has nothing to be replaced
_RESULT_KEY: Final = f'"{RESULT}"'
_LABELS_AT_ONCE: Final = 2_048  # bits of the numbers that say which labels a task requires
_POLICIES: Final = tuple(map(str, FailurePolicy))
_CONDITIONS: Final = tuple(map(str, When))
_STAND_IN: Final = "x" * 22  # as long as a taskId
_CYCLE_LABELS_SHOWN: Final = 12
_GROUP_CYCLES_MAX: Final = 8  # circles of groups that are looked for in one knot
_NODES_EXPLAINED_MAX: Final = 2 * PROBLEMS_MAX  # nodes handed to the schema validator, which is slow


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cyclic garbage meanwhile: for code that makes a great many values, none in a circle, to be kept.

    The collector would look through all of them again and again as they grow in number, which takes half of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# --- reading ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Given:
    """What the parameters of a document are to be.

    values: by name; JSON values, or params.Words. inherited: those of the graph that an extension is for. open: nothing
    is put in yet: the document keeps its `$param` objects, and values that are missing are not missed.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    inherited: Mapping[str, Any] = field(default_factory=dict)
    open: bool = False


NOTHING_GIVEN: Final = Given()


def read_document(
    text: bytes | str, *, source: str = "document", kind: Kind = "graph", given: Given = NOTHING_GIVEN
) -> GraphDocument:
    """Read a submission (`kind="graph"`) or an extension (`tasks` and `groups`, and names may be the graph's).

    source: name of the text, for the error. given: values of the parameters. Raises InvalidGraph with every problem,
    each with pointer and line.
    """
    report = Report(source)
    with collector_paused():
        obj = _parse(text, report)
        return _document(obj, kind, report, given, parameters.mentions(report.text or ""))


def document_from_object(
    obj: object, *, source: str = "document", kind: Kind = "graph", given: Given = NOTHING_GIVEN
) -> GraphDocument:
    """The same checks on Python values (mappings, sequences, text, numbers, booleans, None), which are copied.

    Raises InvalidGraph.
    """
    report = Report(source)
    with collector_paused():
        copied = _copy(obj, report)
        if report.count:
            # A value that JSON does not have would be reported again, as a wrong type, by the schema.
            report.raise_if_any()
        for fault in json_strict.faults(copied):
            report.add(fault.path, fault.code, fault.message, fault.remedy)
        return _document(copied, kind, report, given, True)


def read_json(text: bytes | str, *, source: str = "document") -> Any:
    """The value of a strict JSON text, without any schema. Raises InvalidGraph with what keeps it from being one."""
    report = Report(source)
    obj = _parse(text, report)
    report.raise_if_any()
    return obj


def _parse(text: bytes | str, report: Report) -> Any:
    """From text to a value; raises InvalidGraph at once where there is nothing to go on with."""

    def fatal(code: str, message: str, remedy: str, line: int | None = None) -> InvalidGraph:
        report.add((), code, message, remedy, line)
        return report.error()

    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise fatal(
                "encoding",
                f"Byte {error.start:,} is not UTF-8.",
                "Save the document as UTF-8.",
                error.object.count(b"\n", 0, error.start) + 1,
            ) from error
    text = text.removeprefix("\ufeff")
    if not text.strip(" \t\r\n"):
        raise fatal("syntax", "The document is empty.", 'The smallest graph is {"tasks": {"a": {"task": {}}}}.')
    offset = json_strict.too_deep_at(text, limits.DOCUMENT_DEPTH_MAX)
    if offset is not None:
        raise fatal(
            "depth",
            f"Arrays and objects are nested more than {limits.DOCUMENT_DEPTH_MAX} deep.",
            "Flatten the value, or pass it as a string.",
            json_pointer.line_of(text, offset),
        )
    try:
        parsed = json_strict.parse(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise fatal("syntax", f"This is not JSON: {error.msg} ({at}).", _syntax_remedy(error), error.lineno) from error
    report.text = text
    if parsed.suspect:
        for fault in json_strict.faults(parsed.value):
            report.add(fault.path, fault.code, fault.message, fault.remedy)
    return parsed.value


def _syntax_remedy(error: json.JSONDecodeError) -> str:
    """What people mostly meant when they wrote this."""
    here = error.doc[error.pos : error.pos + 2]
    before = error.doc[: error.pos].rstrip()[-1:]
    match here[:1], before:
        case "'", _:
            return "Strings and keys take double quotes."
        case "/" | "#", _:
            return "JSON has no comments."
        case ("}" | "]", ",") | (",", _):
            return "Remove the comma after the last member."
        case "", _:
            return "The text ends too early; a bracket or quote is not closed."
        case _:
            pass
    if error.msg.startswith("Illegal trailing comma"):
        return "Remove the comma after the last member."
    if error.msg.startswith("Extra data"):
        return "A document is one JSON value; remove what follows it."
    if error.msg.startswith("Invalid control character"):
        return "Write line breaks and tabs inside strings as \\n and \\t."
    if error.msg.startswith("Unterminated string"):
        return "Close the string with a double quote."
    return "Correct the text at this place."


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
            report.add(
                path,
                "depth",
                f"Arrays and objects are nested more than {limits.DOCUMENT_DEPTH_MAX} deep.",
                "Flatten the value, or pass it as a string.",
            )
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
            report.add(
                path,
                "not-json",
                f"The value is {_article(type(obj).__name__)}, which JSON does not have.",
                "Pass text, numbers, booleans, None, mappings, lists or tuples; a time as RFC 3339 text.",
            )
    return None


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


# --- checking --------------------------------------------------------------------------------------------------


def _document(
    obj: Any, kind: Kind, report: Report, given: Given = NOTHING_GIVEN, mentions: bool = True
) -> GraphDocument:
    """Schema, requirements, references, sizes and cycles of a value, which it takes apart; raises InvalidGraph.

    mentions: whether there may be `$param` objects in it.
    """
    _check_envelope(obj, kind, report)
    tasks = obj.get("tasks") if isinstance(obj, dict) else None
    nodes: dict[str, TaskNode] = {}
    declared: dict[str, dict[str, Any]] = {}
    unread: AbstractSet[str] = frozenset()  # labels whose definition lacks a value
    if isinstance(obj, dict) and (mentions or given.values or "params" in obj):
        declared, unread = _put_in(obj, tasks if isinstance(tasks, dict) else {}, kind, given, report)
    groups: dict[str, GroupNode] = {}
    if isinstance(tasks, dict):
        labels = frozenset(tasks)
        once = dict(zip(labels, labels, strict=True))  # the parser makes a text of its own for each mention of a label
        known = _check_labels(tasks, report)
        names = labels
        handed: AbstractSet[str] = frozenset()
        if grouped := obj.get("groups"):
            known, groups = _check_groups(grouped, labels, known, kind, report)
            _check_nesting(labels, groups, report)
            _check_limits(labels, groups, report, whole="maxInFlight" in obj)
            names = labels.union(groups)
            once.update(zip(groups, groups, strict=True))
            handed = grouping.given(groups)
        requirements: dict[str, Sequence[str]] = {}
        policy = obj.get("failurePolicy", FailurePolicy.BLOCK) if kind == "graph" else FailurePolicy.CONTINUE
        results: list[tuple[str, list[tuple[Path, str]]]] = []  # tasks that take outputs, with places and labels
        wrong = 0
        channels = _check_notify(obj.get("notify"), ("notify",), report) if kind == "graph" else set()
        for label, node in tasks.items():
            if label not in unread and not node_is_plain(node, known):
                wrong += 1
                if wrong <= _NODES_EXPLAINED_MAX:
                    _check_by_schema(node, label, report, kind)
                else:
                    report.more(1)
            if not isinstance(node, dict):
                continue
            wanted, optional = named(node.get("requires", ()))
            requirements[label] = _check_requires(("tasks", label), wanted, names, kind, report)
            if "when" in node or optional:
                _check_condition(label, node, optional, policy, report, handed=label in handed)
            if "notify" in node:
                channels |= _check_notify(node["notify"], ("tasks", label, "notify"), report)
            task = node.get("task")
            if isinstance(task, dict) and label not in unread:
                taken = _check_definition(label, task, labels, kind, report)
                if taken:
                    results.append((label, taken))
                if not report.count:
                    requires = tuple([once.get(required, required) for required in wanted])
                    when = str(node.get("when", When.ALL_COMPLETED))
                    nodes[label] = TaskNode(
                        label,
                        requires,
                        int(node.get("reruns", 0)),
                        task,
                        when,
                        optional,
                        notify=node.get("notify", {}),
                        timing=timing.of_node(node),
                        active=node.get("active", True),
                        priority=node.get("priority", ""),
                    )
                    requirements[label] = requires
                    tasks[label] = None  # the node takes its place: a large document is not kept twice
        if len(channels) > limits.CHANNELS_MAX:
            report.add(
                ("notify",) if obj.get("notify") else ("tasks",),
                "too-many",
                f"Notices go to {len(channels):,} different channels; {limits.CHANNELS_MAX} are allowed in a graph.",
                "Send them to one queue or webhook, which shares them out.",
            )
        if groups:
            requirements = grouping.circles(requirements, groups)
        _check_cycles(obj, nodes, requirements, report)
        if results:
            _check_results(results, requirements, labels, kind, report)
        if wrong and not report.count:  # what the schema refuses is never let in for want of words
            report.add(("tasks",), "schema", "A task is not of the form that the schema asks for.", "See the schema.")
    report.raise_if_any()
    if kind == "extension":
        return GraphDocument(nodes, groups=groups)
    return GraphDocument(
        nodes,
        obj.get("routing", ""),
        obj.get("metadata", {}),
        obj.get("tags", {}),
        str(policy),
        declared,
        groups,
        notify=obj.get("notify", {}),
        deadline=obj.get("deadline", ""),
        stalled_after=float(obj.get("stalledAfter", 0)),
        on_stalled=str(obj.get("onStalled", "")).replace("report", ""),
        max_in_flight=int(obj.get("maxInFlight", 0)),
        priority=priorities.column(obj.get("priority", "")),
    )


def _put_in(
    obj: Mapping[str, Any], tasks: Mapping[str, Any], kind: Kind, given: Given, report: Report
) -> tuple[dict[str, dict[str, Any]], AbstractSet[str]]:
    """Put the values of the parameters into the tasks.

    Gives the declarations, the default of each being its value, and the labels of tasks that lack one.
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
                tasks[label]["task"] = made
    if report.count or not isinstance(own, dict):
        return {}, unread
    if given.open:
        return dict(own), unread
    return {name: {**each, "default": found.known[name]} for name, each in own.items()}, unread


def _has_definition(node: Any) -> bool:
    return isinstance(node, dict) and isinstance(node.get("task"), dict)


@functools.cache
def _envelope(kind: Kind) -> schemas.Validator:
    """Validator of a document without the tasks and groups themselves: they are checked one by one."""
    whole = dict(schemas.schema("task-graph" if kind == "graph" else "extension"))
    bare = {"tasks": {"type": "object", "minProperties": 1}, "groups": {"type": "object"}}
    whole["properties"] = {**whole["properties"], **bare}
    # The name goes as well, so that the local references of the rest are looked up in this reduced copy.
    return schemas.validator_of({key: value for key, value in whole.items() if key != "$id"})


def _check_envelope(obj: Any, kind: Kind, report: Report) -> None:
    for error in itertools.islice(_envelope(kind).iter_errors(obj), 2 * PROBLEMS_MAX):
        explain(error, (), report, kind == "extension")
    if isinstance(obj, dict) and not report.count:
        for key in ("metadata", "tags"):
            units = utf16_units(canonical_json(obj.get(key, {})))
            if units > limits.PROPERTY_CHARS_MAX:
                report.add(
                    (key,),
                    "too-large",
                    f"`{key}` has {units:,} UTF-16 units as JSON; {limits.PROPERTY_CHARS_MAX:,} fit.",
                    "Shorten it; what tasks need belongs into their payloads.",
                )


def _check_notify(notify: Any, path: Path, report: Report) -> set[str]:
    """What the schema cannot say well: a channel is one of three, and no queue of our own. Gives the channels."""
    found: set[str] = set()
    if not isinstance(notify, dict):
        return found
    for key, listed in notify.items():
        for index, channel in enumerate(listed if isinstance(listed, list) else [listed]):
            if not isinstance(channel, dict):
                continue
            place: Path = (*path, key, index) if isinstance(listed, list) else (*path, key)
            kinds = [each for each in CHANNEL_KINDS if each in channel]
            if len(kinds) != 1:
                report.add(
                    place,
                    "bad-channel",
                    f"A channel is one of {', '.join(f'`{each}`' for each in CHANNEL_KINDS)}, and this names "
                    f"{' and '.join(f'`{each}`' for each in kinds) or 'none of them'}.",
                    "Write a list of channels, if there are several.",
                )
            elif "secret" in channel and kinds != ["webhook"]:
                report.add(
                    (*place, "secret"),
                    "bad-channel",
                    f"A {kinds[0]} is not signed: `secret` goes with `webhook`.",
                    "Remove the key.",
                )
            elif kinds == ["queue"] and str(channel["queue"]).startswith(_OWN_QUEUES):
                report.add(
                    (*place, "queue"),
                    "bad-channel",
                    f"{show(str(channel['queue']))} is a name of taskgraph's own queues.",
                    f"Choose a name that does not begin with {_OWN_QUEUES}.",
                )
            else:
                found.add(str(sorted(channel.items(), key=str)))
    return found


def _check_labels(tasks: Mapping[str, Any], report: Report, *, groups: bool = False) -> frozenset[str]:
    """Report labels (or names of groups) of a wrong form; gives the others."""
    wrong = [label for label in tasks if not is_label(label)]
    word, one = ("name of the group", "The name of a group") if groups else ("label", "A label")
    for label in wrong:
        path = ("groups" if groups else "tasks", label)
        if not report.takes("label"):
            report.more(1)
        elif not label:
            report.add(path, "label", f"{one} is empty.", f"Give the {'group' if groups else 'task'} a name.")
        elif len(label) > limits.LABEL_CHARS_MAX:
            report.add(
                path,
                "label",
                f"The {word} {show(label)} has {len(label):,} characters; {limits.LABEL_CHARS_MAX} are allowed.",
                "Shorten it." if groups else "Shorten it, and put the rest into metadata.description of the task.",
            )
        else:
            report.add(path, "label", f"The {word} {show(label)} holds a control character.", "Remove it.")
    return frozenset(tasks).difference(wrong)


def _check_groups(
    groups: Any, labels: frozenset[str], known: frozenset[str], kind: Kind, report: Report
) -> tuple[frozenset[str], dict[str, GroupNode]]:
    """Form, names, members and requirements of groups; gives labels and names of a right form, and usable groups."""
    if not isinstance(groups, dict):
        return known, {}  # the envelope has said so
    known = known.union(_check_labels(groups, report, groups=True))
    names = labels.union(groups)
    found: dict[str, GroupNode] = {}
    wrong = 0
    for name, group in groups.items():
        path: Path = ("groups", name)
        if name in labels:
            message = f"{show(name)} is both a task and a group."
            report.add(path, "name-clash", message, "Give the group another name: tasks and groups share their names.")
        if not group_is_plain(group, known):
            wrong += 1
            if wrong <= _NODES_EXPLAINED_MAX:
                validator = schemas.validator("task-graph", "#/$defs/group")
                for error in itertools.islice(validator.iter_errors(group), PROBLEMS_MAX):
                    explain(error, path, report, kind == "extension")
            else:
                report.more(1)
        if not isinstance(group, dict) or name in labels:
            continue
        inside = _check_names((*path, "tasks"), name, group.get("tasks"), names, "member", kind, report)
        requires = _check_requires(path, group.get("requires"), names, kind, report)
        if inside:
            wanted = requires if report.count else group.get("requires", ())
            most = group.get("maxInFlight", 0)
            found[name] = GroupNode(
                name, tuple(inside), tuple(wanted), group.get("active", True), most if type(most) is int else 0
            )
    if wrong and not report.count:  # what the schema refuses is never let in for want of words
        report.add(("groups",), "schema", "A group is not of the form that the schema asks for.", "See the schema.")
    return known, found


def _check_nesting(labels: AbstractSet[str], groups: dict[str, GroupNode], report: Report) -> None:
    """Groups that contain each other, and tasks in too many.

    Groups that contain each other are taken out of one another: the rest can still be looked at.
    """
    nested = {name: [each for each in group.tasks if each in groups] for name, group in groups.items()}
    for _ in range(_GROUP_CYCLES_MAX):  # each round takes a step out of every circle that was found
        for cycle, _, exact in list(graph_algorithms.cycles(nested)):
            first, second = cycle[0], cycle[1]
            if report.takes("group-cycle"):
                shown = " → ".join(_cut([show(name) for name in (*cycle, first)]))
                report.add(
                    ("groups", first, "tasks", groups[first].tasks.index(second)),
                    "group-cycle",
                    f"The groups contain each other in a circle ({'the shortest' if exact else 'one'} of "
                    f"{len(cycle):,}; → means contains): {shown}.",
                    "Take one of these groups out of the other.",
                )
            else:
                report.more(1)
            nested[first] = [name for name in nested[first] if name != second]
    if not graph_algorithms.is_acyclic(nested):
        nested = {name: [] for name in nested}
    for name, group in groups.items():
        left = frozenset(nested[name])
        inside = tuple(each for each in group.tasks if each not in groups or each in left)
        groups[name] = replace(group, tasks=inside)
    for label, inside in grouping.within(groups, at_most=limits.GROUPS_OF_TASK_MAX).items():
        if label in labels and len(inside) > limits.GROUPS_OF_TASK_MAX:
            report.add(
                ("tasks", label),
                "too-many-groups",
                f"{show(label)} is in more than {limits.GROUPS_OF_TASK_MAX} groups, nested ones counted.",
                "Take it out of some, or nest them less deeply.",
            )


def too_limited(document: GraphDocument) -> list[str]:
    """Tasks that are under as many limits as they may be, so that none of their graph can come on top."""
    limited = [name for name, group in document.groups.items() if group.max_in_flight]
    if len(limited) < limits.LIMITS_OF_TASK_MAX:
        return []
    return [
        label
        for label, inside in grouping.within(document.groups).items()
        if label in document.tasks and sum(name in limited for name in inside) >= limits.LIMITS_OF_TASK_MAX
    ]


def _check_limits(labels: AbstractSet[str], groups: Mapping[str, GroupNode], report: Report, *, whole: bool) -> None:
    """Tasks under too many limits, and too many limits. whole: the graph has one of its own."""
    limited = {name: group for name, group in groups.items() if group.max_in_flight}
    if len(limited) > limits.LIMITED_GROUPS_MAX:
        report.add(
            ("groups",),
            "too-many-limits",
            f"{len(limited):,} groups have maxInFlight; {limits.LIMITED_GROUPS_MAX} may in a graph.",
            "Put a limit on fewer groups.",
        )
    most = limits.LIMITS_OF_TASK_MAX - whole
    if len(limited) <= most:
        return
    for label, inside in grouping.within(groups).items():
        if label in labels and sum(name in limited for name in inside) > most:
            report.add(
                ("tasks", label),
                "too-many-limits",
                f"{show(label)} is under more than {limits.LIMITS_OF_TASK_MAX} limits, that of the graph counted.",
                "Take maxInFlight off some of its groups.",
            )


def _check_requires(path: Path, requires: Any, names: AbstractSet[str], kind: Kind, report: Report) -> Sequence[str]:
    """Duplicates, oneself and unknown names; gives those that are usable. The form is the schema's matter."""
    return _check_names((*path, "requires"), str(path[-1]), requires, names, "requirement", kind, report)


def _check_names(
    path: Path,
    name: str,
    listed: Any,
    names: AbstractSet[str],
    what: Literal["requirement", "member"],
    kind: Kind,
    report: Report,
) -> Sequence[str]:
    """What a task or group requires, or what a group contains: all of it once, known, and not itself."""
    if not listed or not isinstance(listed, list):
        return ()
    try:
        once = set(listed)
    except TypeError:
        once = set()
    if len(once) == len(listed) and name not in once and names >= once:
        return listed
    verb = "requires" if what == "requirement" else "contains"
    seen: dict[str, None] = {}
    for index, each in enumerate(listed):
        if not isinstance(each, str):
            continue
        if each in seen:
            code = f"duplicate-{what}"
        elif each == name:
            code = f"self-{what}"
        elif each not in names and (kind == "graph" or what == "member"):
            code = "unknown-label"
        else:
            code = ""
        if code and not report.takes(code):
            report.more(1)
        elif code == f"duplicate-{what}":
            message = f"{show(name)} {verb} {show(each)} more than once."
            report.add((*path, index), code, message, "Name each label once.")
        elif code == f"self-{what}":
            report.add((*path, index), code, f"{show(name)} {verb} itself.", "Remove it.")
        elif code == "unknown-label":
            message = f"{show(name)} {verb} {show(each)}, which is neither a task nor a group of this document."
            remedy = "Correct the name, or add the task."
            report.add((*path, index), code, message + report.near(each, names), remedy)
        seen[each] = None
    return [each for each in seen if each in names and each != name]


def _check_condition(
    label: str, node: Mapping[str, Any], optional: AbstractSet[str], policy: object, report: Report, *, handed: bool
) -> None:
    """Conditions where nobody would ever tell how a requirement failed, and those that nothing can meet.

    handed: whether a group that the task is in requires something for it.
    """
    when, requires = node.get("when", When.ALL_COMPLETED), node.get("requires")
    conditional = when != When.ALL_COMPLETED
    if not conditional and not optional:
        return
    if policy not in _POLICIES or when not in _CONDITIONS:
        return  # a word that nobody knows, which is reported as such
    path: Path = ("tasks", label, "when" if conditional else "requires")
    if policy != FailurePolicy.CONTINUE:
        what = f"`when: {show(when)}`" if conditional else "optional requirements"
        report.add(
            path,
            "needs-continue",
            f"{show(label)} has {what}, which needs failurePolicy: continue; under {show(policy)} nobody is told how a "
            "requirement failed.",
            'Add "failurePolicy": "continue" to the document, or remove the condition.',
        )
    elif conditional and not requires and not handed:
        report.add(
            path,
            "needless-condition",
            f"{show(label)} has `when: {show(when)}` and requires nothing.",
            "Name what it waits for in `requires`, or remove `when`.",
        )
    elif when == When.ANY_FAILED and isinstance(requires, list) and len(optional) == len(requires) and not handed:
        report.add(
            path,
            "needless-condition",
            f"{show(label)} runs when a requirement failed, and all of its requirements are optional: their failing "
            "does not matter, so it would never run.",
            "Let at least one requirement not be optional.",
        )


def _check_definition(
    label: str, task: dict[str, Any], labels: AbstractSet[str], kind: Kind, report: Report
) -> list[tuple[Path, str]]:
    """References inside the payload, and the size that the definition will have.

    Gives the `$result` references of the right form: their places, and the labels that they name.
    """
    taken: list[tuple[Path, str]] = []
    try:
        text = canonical_json(task)
    except (ValueError, TypeError):
        return taken  # a number that is none: reported already, and its size is of no interest
    if _SUBS_KEY in text or _RESULT_KEY in text:
        found = _check_references(label, task.get("payload"), labels, kind, report, taken)
        if found:
            text = canonical_json(_replace(task, lambda _: _STAND_IN, lenient=True))
    units = len(text) if len(text) <= limits.DEFINITION_CHARS_MAX // 2 else utf16_units(text)
    if units > limits.DEFINITION_CHARS_MAX:
        report.add(
            ("tasks", label, "task"),
            "too-large",
            f"The definition of {show(label)} has {units:,} UTF-16 units as JSON; {limits.DEFINITION_CHARS_MAX:,} fit.",
            "Put the data into a file or blob, and its address into the payload.",
        )
    return taken


def _check_references(
    label: str,
    payload: Any,
    labels: AbstractSet[str],
    kind: Kind,
    report: Report,
    taken: list[tuple[Path, str]],
) -> bool:
    """Report every `$subs` and `$result` object of a wrong form or with an unknown label; gives whether there is any.

    taken: gets the others of `$result`, with their places.
    """
    found = False
    for path, here in _reference_objects(payload):
        found = True
        place: Path = ("tasks", label, "task", "payload", *path)
        if RESULT in here:
            why = outputs.wrong_form(here) if path else "it is the payload itself"
            if why:
                message = f'A `$result` object of {show(label)} is not of the form {{"$result": "<label>"}} ({why}).'
                remedy = "Only `path`, a JSON pointer into the output, and `default` may stand beside the label."
                report.add(place, "bad-result", message, remedy if path else "Put the reference inside the payload.")
                continue
            key, named_label, remedy = RESULT, str(here[RESULT]), "Correct the label, or add the task."
        else:
            name = here[SUBS]
            if not path:
                message = "The payload itself is a `$subs` object."
                report.add(place, "bad-subs", message, "Put the reference inside the payload.")
                continue
            if len(here) != 1 or not isinstance(name, str) or not name.startswith(SUBS_PREFIX):
                report.add(
                    place,
                    "bad-subs",
                    f"A `$subs` object of {show(label)} is not of the form "
                    '{"$subs": "taskId:<label>"}' + f" ({_what_is_wrong(here)}).",
                    'Write {"$subs": "taskId:<label>"}, with nothing beside it.',
                )
                continue
            key, named_label = SUBS, name.removeprefix(SUBS_PREFIX)
            remedy = "Correct the label after `taskId:`, or add the task."
        if named_label in labels or (kind == "extension" and is_label(named_label)):
            if key == RESULT:
                taken.append(((*place, RESULT), named_label))
            continue
        if not report.takes("unknown-label"):
            report.more(1)
            continue
        near = report.near(named_label, labels)
        message = f"{show(label)} refers to {show(named_label)}, which is not a task of this document.{near}"
        report.add((*place, key), "unknown-label", message, remedy)
    return found


def _what_is_wrong(here: Mapping[str, Any]) -> str:
    if len(here) != 1:
        return f"it also has {show(next(key for key in here if key != SUBS))}"
    return f"the value is {show(here[SUBS])}"


def _reference_objects(payload: Any) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every object with a key `$subs` or `$result` inside, with its place; nothing below one is looked at."""
    stack: list[tuple[Path, Any]] = [((), payload)]
    while stack:
        path, here = stack.pop()
        if isinstance(here, Mapping):
            if SUBS in here or RESULT in here:
                yield path, here
            else:
                stack.extend(
                    ((*path, key), member)
                    for key, member in reversed(list(here.items()))
                    if isinstance(member, Mapping | list | tuple)
                )
        elif isinstance(here, list | tuple):
            stack.extend(
                ((*path, index), here[index])
                for index in range(len(here) - 1, -1, -1)
                if isinstance(here[index], Mapping | list | tuple)
            )


def _check_results(
    results: Sequence[tuple[str, Sequence[tuple[Path, str]]]],
    requirements: Mapping[str, Sequence[str]],
    labels: AbstractSet[str],
    kind: Kind,
    report: Report,
) -> None:
    """Report every task that takes an output of one which it does not require, directly or not.

    In an extension the tasks of the graph may have completed long ago, or be required on ways that only the graph
    knows: these are looked at when the extension is planned.
    """
    asked = {label: [used for _, used in taken] for label, taken in results}
    missing = without_requirement(asked, requirements)
    for label, taken in results:
        for path, used in taken:
            if used not in missing.get(label, ()) or (kind == "extension" and used not in labels):
                continue
            if not report.takes("not-required"):
                report.more(1)
                continue
            message = f"{show(label)} uses the result of {show(used)}, which it does not require, directly or not."
            remedy = f"Add {show(used)} to `requires` of {show(label)}."
            report.add(path, "not-required", message, remedy if used != label else "Name a task that comes before it.")


def without_requirement(
    asked: Mapping[str, Sequence[str]], requirements: Mapping[str, Sequence[str]]
) -> dict[str, set[str]]:
    """Of the labels that each task asks for, those that it does not require, directly or through others.

    requirements: of every task, and of every end of a group where there are groups (see `documents.groups.circles`).
    One look at every edge answers for a great many labels at once: they are bits of one number.
    """
    left = {
        label: {used for used in wanted if used not in requirements.get(label, ())} for label, wanted in asked.items()
    }
    open_labels = list(dict.fromkeys(used for wanted in left.values() for used in wanted))
    if not open_labels:
        return {}
    order = list(graph_algorithms.levels(requirements))  # whoever is on a cycle, or behind one, is not there
    for start in range(0, len(open_labels), _LABELS_AT_ONCE):
        bits = {used: 1 << number for number, used in enumerate(open_labels[start : start + _LABELS_AT_ONCE])}
        reached: dict[str, int] = {}
        for label in order:
            mask = 0
            for required in requirements[label]:
                mask |= reached.get(required, 0) | bits.get(required, 0)
            if mask:
                reached[label] = mask
        for label, wanted in left.items():
            mask = reached.get(label, 0)
            wanted.difference_update([used for used in wanted if mask & bits.get(used, 0)])
    return {label: wanted for label, wanted in left.items() if wanted}


def _check_by_schema(node: Any, label: str, report: Report, kind: Kind) -> None:
    """Report what the schema says of a node that is not plain."""
    validator = schemas.validator("task-graph", "#/$defs/node")
    # A node may hold a million wrong values; nobody reads more than a hundred.
    for error in itertools.islice(validator.iter_errors(node), PROBLEMS_MAX):
        explain(error, ("tasks", label), report, kind == "extension")


# --- cycles ----------------------------------------------------------------------------------------------------


def _check_cycles(
    obj: Mapping[str, Any], nodes: Mapping[str, TaskNode], requirements: Mapping[str, Sequence[str]], report: Report
) -> None:
    """Report for every knot of tasks that wait for each other the shortest cycle in it."""
    for cycle, size, exact in graph_algorithms.cycles(requirements):
        if not report.takes("cycle"):
            report.more(1)
            continue
        first, second = cycle[0], cycle[1]
        shown = " → ".join(_cut([_node_name(node) for node in (*cycle, first)]))
        grouped = any(map(grouping.is_end, cycle))
        more = f" {size:,} tasks wait for each other in this way." if size > len(cycle) and not grouped else ""
        what = f"{len(cycle):,} steps, tasks and groups" if grouped else f"{len(cycle):,} tasks"
        report.add(
            _place_of(first, second, obj, nodes),
            "cycle",
            f"The tasks require each other in a circle ({'the shortest' if exact else 'one'} of {what}; "
            f"→ means requires): {shown}.{more}",
            "Remove one of these requirements.",
        )


def _place_of(first: str, second: str, obj: Mapping[str, Any], nodes: Mapping[str, TaskNode]) -> Path:
    """Where a document says that one step of a circle waits for the next. The first is a task: all circles have one."""
    name = grouping.name_of(second)
    if second.startswith(grouping.START):
        return ("groups", name, "tasks", obj["groups"][name]["tasks"].index(first))
    requires = nodes[first].requires if first in nodes else named(obj["tasks"][first]["requires"])[0]
    return ("tasks", first, "requires", requires.index(name))


def _node_name(node: str) -> str:
    name = show(grouping.name_of(node))
    if grouping.is_end(node):
        return f"{'its ' if node.startswith(grouping.START) else ''}group {name}"
    return name


def _cut(shown: list[str]) -> list[str]:
    """A path of which the middle is left out where it is long."""
    if len(shown) > _CYCLE_LABELS_SHOWN:
        left = len(shown) - _CYCLE_LABELS_SHOWN
        shown[_CYCLE_LABELS_SHOWN - 2 : -2] = [f"… ({left:,} more) …"]
    return shown


# --- what a document says --------------------------------------------------------------------------------------


def references(node: TaskNode) -> frozenset[str]:
    """Labels that the payload of a task refers to by `$subs` or `$result`."""
    return frozenset(
        named_by.removeprefix(SUBS_PREFIX) if key == SUBS else named_by
        for _, here in _reference_objects(node.task.get("payload"))
        for key in (SUBS, RESULT)
        if isinstance(named_by := here.get(key), str)
    )


def results_without_requirement(document: GraphDocument) -> dict[str, set[str]]:
    """Label -> labels whose outputs it takes, and which nothing in the document makes it wait for."""
    asked: dict[str, list[str]] = {}
    for label, node in document.tasks.items():
        taken = [here[RESULT] for _, here in _reference_objects(node.task.get("payload")) if RESULT in here]
        if taken:
            asked[label] = [used for used in taken if isinstance(used, str)]
    if not asked:
        return {}
    requirements: dict[str, Sequence[str]] = {label: node.requires for label, node in document.tasks.items()}
    if document.groups:
        requirements = grouping.circles(requirements, document.groups)
    return without_requirement(asked, requirements)


def external_labels(document: GraphDocument) -> frozenset[str]:
    """Names in requirements and references that the document does not hold; empty for a graph."""
    named: set[str] = set()
    for node in document.tasks.values():
        named.update(node.requires)
        named.update(references(node))
    for group in document.groups.values():
        named.update(group.requires)
    return frozenset(named.difference(document.tasks, document.groups))


def substitute(task: Mapping[str, Any], resolve: Callable[[str], str]) -> dict[str, Any]:
    """A task definition in which every `$subs` object of the payload is the taskId that resolve gives for its label.

    A `$result` object names that taskId besides the label. What resolve raises passes through. Raises InvalidInput for
    a payload that no validated document can hold.
    """
    return _replace(task, resolve)


def _replace(task: Mapping[str, Any], resolve: Callable[[str], str], *, lenient: bool = False) -> dict[str, Any]:
    if "payload" not in task:
        return dict(task)
    return {**task, "payload": _replaced(task["payload"], resolve, lenient, limits.DOCUMENT_DEPTH_MAX)}


def _replaced(value: Any, resolve: Callable[[str], str], lenient: bool, depth_left: int) -> Any:
    if isinstance(value, Mapping):
        if depth_left <= 0:
            raise InvalidInput(f"A payload is nested more than {limits.DOCUMENT_DEPTH_MAX} deep.")
        if RESULT in value and not outputs.wrong_form(value):
            return outputs.stored(value, resolve(value[RESULT]))
        if SUBS in value:
            name = value[SUBS]
            if len(value) == 1 and isinstance(name, str) and name.startswith(SUBS_PREFIX):
                return resolve(name.removeprefix(SUBS_PREFIX))
            if not lenient:
                raise InvalidInput('A `$subs` object is not of the form {"$subs": "taskId:<label>"}.')
        return {key: _replaced(member, resolve, lenient, depth_left - 1) for key, member in value.items()}
    if isinstance(value, list | tuple):
        if depth_left <= 0:
            raise InvalidInput(f"A payload is nested more than {limits.DOCUMENT_DEPTH_MAX} deep.")
        return [_replaced(member, resolve, lenient, depth_left - 1) for member in value]
    return value


def node_digest(node: TaskNode) -> str:
    """32 hexadecimal digits, equal for nodes that mean the same: defaults filled in, order of requires aside."""
    task = {"routing": "", "target": DEFAULT_TARGET, **node.task}
    requires = sorted(set(node.requires)) if len(node.requires) > 1 else list(node.requires)
    normal: dict[str, Any] = {"label": node.label, "requires": requires, "reruns": node.reruns, "task": task}
    if node.when != When.ALL_COMPLETED:  # what is not used leaves the digests of older versions as they were
        normal["when"] = str(node.when)
    if node.optional:
        normal["optional"] = sorted(node.optional)
    if node.notify:
        normal["notify"] = _channels_listed(node.notify)
    normal |= node.timing
    if not node.active:
        normal["active"] = False
    if node.priority:
        normal["priority"] = node.priority
    return hashlib.sha256(canonical_json(normal).encode()).hexdigest()[:32]


def node_digests(document: GraphDocument) -> dict[str, str]:
    """Label -> node_digest, of every task."""
    return {label: node_digest(node) for label, node in document.tasks.items()}


def content_hash(document: GraphDocument, digests: Mapping[str, str] | None = None) -> str:
    """32 hexadecimal digits that are equal for documents that mean the same, whatever the order of their keys.

    digests: node_digests of the document, from a caller who has them.
    """
    if digests is None:
        digests = node_digests(document)
    digest = hashlib.sha256()
    envelope: dict[str, Any] = {
        "routing": document.routing,
        "metadata": dict(document.metadata),
        "tags": dict(document.tags),
    }
    if document.failure_policy != FailurePolicy.BLOCK:
        envelope["failurePolicy"] = document.failure_policy
    if document.params:
        envelope["params"] = document.values
    envelope |= _stalling(document)
    if document.max_in_flight:
        envelope["maxInFlight"] = document.max_in_flight
    if document.notify:
        envelope["notify"] = _channels_listed(document.notify)
    if document.deadline:
        envelope["deadline"] = document.deadline
    if document.priority:
        envelope["priority"] = document.priority
    digest.update(canonical_json(envelope).encode())
    for label in sorted(document.tasks):
        digest.update(digests[label].encode())
    for name in sorted(document.groups):
        group = document.groups[name]
        normal: dict[str, Any] = {
            "group": name,
            "tasks": sorted(set(group.tasks)),
            "requires": sorted(set(group.requires)),
        }
        if not group.active:
            normal["active"] = False
        if group.max_in_flight:
            normal["maxInFlight"] = group.max_in_flight
        digest.update(canonical_json(normal).encode())
    return digest.hexdigest()[:32]


def _stalling(document: GraphDocument) -> dict[str, Any]:
    """What a document says of a graph that stands still, if anything."""
    said: dict[str, Any] = {"stalledAfter": document.stalled_after, "onStalled": document.on_stalled}
    return {key: value for key, value in said.items() if value}


def _channels_listed(notify: Mapping[str, Any]) -> dict[str, Any]:
    """One channel and a list of one channel mean the same."""
    return {key: list(each) if isinstance(each, list | tuple) else [each] for key, each in notify.items()}


def document_object(document: GraphDocument) -> dict[str, Any]:
    """The JSON form of a document; reading it gives an equal document. Values are shared, not copied."""
    made: dict[str, Any] = {}
    if document.routing:
        made["routing"] = document.routing
    if document.metadata:
        made["metadata"] = dict(document.metadata)
    if document.tags:
        made["tags"] = dict(document.tags)
    if document.failure_policy != FailurePolicy.BLOCK:
        made["failurePolicy"] = document.failure_policy
    if document.params:
        made["params"] = {name: dict(declared) for name, declared in document.params.items()}
    made |= _stalling(document)
    if document.max_in_flight:
        made["maxInFlight"] = document.max_in_flight
    if document.notify:
        made["notify"] = dict(document.notify)
    if document.deadline:
        made["deadline"] = document.deadline
    if document.priority:
        made["priority"] = document.priority
    made["tasks"] = {label: _node_object(node) for label, node in document.tasks.items()}
    if document.groups:
        made["groups"] = {
            name: {
                "tasks": list(group.tasks),
                "requires": list(group.requires),
                **({} if group.active else {"active": False}),
                **({"maxInFlight": group.max_in_flight} if group.max_in_flight else {}),
            }
            for name, group in document.groups.items()
        }
    return made


def _node_object(node: TaskNode) -> dict[str, Any]:
    requires = [{"label": each, "optional": True} if each in node.optional else each for each in node.requires]
    made: dict[str, Any] = {"requires": requires, "reruns": node.reruns, **node.timing, "task": dict(node.task)}
    if node.when != When.ALL_COMPLETED:
        made["when"] = str(node.when)
    if node.notify:
        made["notify"] = dict(node.notify)
    if not node.active:
        made["active"] = False
    if node.priority:
        made["priority"] = node.priority
    return made


# --- legal, and yet --------------------------------------------------------------------------------------------


def warnings(document: GraphDocument) -> list[Problem]:
    """What is legal and looks like a mistake: one problem for each kind, at the first place, with the number of tasks.

    Codes: no-executor, own-executor, near-key, misplaced-key, retries, subs-outside-payload.
    """
    found: dict[tuple[str, str], list[Any]] = {}  # (code, subject) -> [path, label, number of tasks]
    near_keys: dict[tuple[str, tuple[str, ...]], str] = {}

    def near(key: str, known: tuple[str, ...]) -> str:
        if (key, known) not in near_keys and len(near_keys) < 1_000:
            close = difflib.get_close_matches(key[:64], known, 1, 0.75)
            near_keys[key, known] = close[0] if close else ""
        return near_keys.get((key, known), "")

    def note(code: str, subject: str, path: Path, label: str) -> None:
        entry = found.setdefault((code, subject), [path, label, 0])
        entry[2] += 1

    for label, node in document.tasks.items():
        task = node.task
        path: Path = ("tasks", label, "task")
        payload = task.get("payload", {})
        executor = task.get("executor")
        if executor is None and payload and "command" not in payload and "call" not in payload:
            note("no-executor", "", path, label)
        elif executor is not None and executor not in BUILT_IN_EXECUTORS:
            note("own-executor", executor, (*path, "executor"), label)
        for key, value in task.items():
            if key not in TASK_KEYS:
                if key == "retries":
                    note("retries", "", (*path, key), label)
                elif key in COMMAND_KEYS and key not in payload:
                    note("misplaced-key", key, (*path, key), label)
                elif (close := near(key, TASK_KEYS)) and close not in task:
                    note("near-key", f"{key}\0{close}", (*path, key), label)
            if key != "payload" and isinstance(value, dict | list):
                for inner, here in itertools.islice(_reference_objects(value), 1):
                    note("subs-outside-payload", SUBS if SUBS in here else RESULT, (*path, key, *inner), label)
        if executor == "command" or (executor is None and "command" in payload):
            for key in payload:
                if key not in COMMAND_KEYS and (close := near(key, COMMAND_KEYS)) and close not in payload:
                    note("near-key", f"{key}\0{close}", (*path, "payload", key), label)
    return [
        Problem(pointer(path), code, *_warning(code, subject, label, count))
        for (code, subject), (path, label, count) in itertools.islice(found.items(), PROBLEMS_MAX)
    ]


def _warning(code: str, subject: str, label: str, count: int) -> tuple[str, str]:
    """Message and remedy."""
    others = f" and {count - 1:,} other{'s' if count > 2 else ''}" if count > 1 else ""
    who = f"{show(label)}{others}"
    match code:
        case "no-executor":
            message = (
                f"{who}: no executor is named, and no built-in one understands the payload; workers hand such a task "
                "back, and it waits until a worker comes that can run it."
            )
            remedy = 'Name an executor ("noop" for a task that does nothing), or give the payload a `command`.'
        case "own-executor":
            message = (
                f"{who}: the executor {show(subject)} is not built in; the task waits for a worker that brings it."
            )
            remedy = f"Start such a worker for its target, or use one of {', '.join(sorted(BUILT_IN_EXECUTORS))}."
        case "misplaced-key":
            message = f"{who}: {show(subject)} stands beside the payload, where no built-in executor looks."
            remedy = f"Move it to payload.{subject}."
        case "retries":
            message = f"{who}: `retries` has no meaning here; every task may be lost {limits.RETRIES_DEFAULT} times."
            remedy = "For failures that a rerun may mend, say `reruns` beside `task`; for ones of the moment, `retry`."
        case "near-key":
            key, _, close = subject.partition("\0")
            message = f"{who}: {show(key)} has no meaning here."
            remedy = f"If you mean {show(close)}, correct the key."
        case "subs-outside-payload":
            message = f"{who}: a `{subject}` object outside the payload stays as it is."
            remedy = "References are replaced inside the payload alone; move it there."
        case _:  # pragma: no cover
            raise AssertionError(code)
    return message, remedy
