"""What must hold of a document beyond its schema: references, groups, limits, cycles, conditions."""

import itertools
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final, Literal

from taskgraph.documents import graph_algorithms, references
from taskgraph.documents import groups as grouping
from taskgraph.documents import results as outputs
from taskgraph.documents.canonical import success_of
from taskgraph.documents.nodes import GraphDocument, GroupNode, Kind, Success, TaskNode
from taskgraph.documents.placeholders import OF_FOLDER, is_command, objects_with, replaced
from taskgraph.documents.problems import PROBLEMS_MAX, Report
from taskgraph.documents.schema_check import (
    CHANNEL_KINDS,
    EACH,
    FILE,
    RESULT,
    SUBS,
    SUBS_PREFIX,
    explain,
    is_label,
    named,
)
from taskgraph.documents.warnings import check_keys
from taskgraph.model import limits, schemas
from taskgraph.model.json_strict import Path, canonical_json, show
from taskgraph.model.secrecy import SECRET, secret_named
from taskgraph.model.states import FailurePolicy, When
from taskgraph.model.utf16 import utf16_units

_OWN_QUEUES: Final = "taskgraph-"
_POLICIES: Final = tuple(map(str, FailurePolicy))
_CONDITIONS: Final = tuple(map(str, When))
_CYCLE_LABELS_SHOWN: Final = 12
_GROUP_CYCLES_MAX: Final = 8  # circles of groups that are looked for in one knot

_FORMS: Final = {  # of references that take something: the form, what may stand in it, and the code of a wrong one
    RESULT: (
        '{"$result": "<label>"}',
        "Only `path`, a JSON pointer into the output, and `default` may stand beside the label.",
        "bad-result",
    ),
    FILE: (
        '{"$file": "<label>", "path": "<file>"}',
        "`path` is that of a file among the `outputs` of the task, from its working folder on.",
        "bad-file",
    ),
}
_SHARE: Final = re.compile(r"(?!0(\.0{1,2})?%)(100(\.0{1,2})?|[1-9]?[0-9](\.[0-9]{1,2})?)%", re.ASCII)
_LOOKED_AT_ONCE: Final = 1_000  # tasks or groups whose form is looked at together
_EXPLAINED_MAX: Final = 2 * PROBLEMS_MAX  # tasks or groups whose findings are looked for, which is slow


def check_envelope(obj: Any, kind: Kind, report: Report) -> None:
    """All but the nodes of tasks, against the schema."""
    envelope = schemas.envelope("task-graph" if kind == "graph" else "extension", "tasks", "groups")
    for error in itertools.islice(envelope.iter_errors(obj), 2 * PROBLEMS_MAX):
        explain(error, (), report, kind == "extension")
    if isinstance(obj, dict) and not report.count:
        for key in ("metadata", "tags"):
            units = utf16_units(canonical_json(obj.get(key, {})))
            if units > limits.PROPERTY_CHARS_MAX:
                message = f"`{key}` has {units:,} UTF-16 units as JSON; {limits.PROPERTY_CHARS_MAX:,} fit."
                report.add((key,), "too-large", message, "Shorten it; what tasks need belongs into their payloads.")


def check_notify(notify: Any, path: Path, report: Report) -> set[str]:
    """Check what the schema cannot: a channel is one of three, and no queue of our own. Gives the channels."""
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
                known = ", ".join(f"`{each}`" for each in CHANNEL_KINDS)
                named_here = " and ".join(f"`{each}`" for each in kinds) or "none of them"
                message = f"A channel is one of {known}, and this names {named_here}."
                report.add(place, "bad-channel", message, "Write a list of channels, if there are several.")
            elif "secret" in channel and kinds != ["webhook"]:
                message = f"A {kinds[0]} is not signed: `secret` goes with `webhook`."
                report.add((*place, "secret"), "bad-channel", message, "Remove the key.")
            elif "format" in channel and path != ("notify",):
                message = f"The format {show(str(channel['format']))} has no message about a task."
                report.add(
                    (*place, "format"), "bad-channel", message, "Remove the key, or name the channel for the graph."
                )
            elif kinds == ["queue"] and str(channel["queue"]).startswith(_OWN_QUEUES):
                message = f"{show(str(channel['queue']))} is a name of taskgraph's own queues."
                remedy = f"Choose a name that does not begin with {_OWN_QUEUES}."
                report.add((*place, "queue"), "bad-channel", message, remedy)
            else:
                found.add(str(sorted(channel.items(), key=str)))
    return found


def check_labels(tasks: Mapping[str, Any], report: Report, *, groups: bool = False) -> None:
    word, one = ("name of the group", "The name of a group") if groups else ("label", "A label")
    for label in tasks:
        if is_label(label):
            continue
        path = ("groups" if groups else "tasks", label)
        if not label:
            report.add(path, "label", f"{one} is empty.", f"Give the {'group' if groups else 'task'} a name.")
        elif len(label) > limits.LABEL_CHARS_MAX:
            message = f"The {word} {show(label)} has {len(label):,} characters; {limits.LABEL_CHARS_MAX} are allowed."
            remedy = "Shorten it." if groups else "Shorten it, and put the rest into metadata.description of the task."
            report.add(path, "label", message, remedy)
        else:
            report.add(path, "label", f"The {word} {show(label)} holds a control character.", "Remove it.")


class Form:
    """The form of tasks or groups by their schema: of the first wrong ones every finding, of the rest the number."""

    def __init__(self, what: Literal["task", "group"], kind: Kind, report: Report) -> None:
        self._what, self._kind, self._report = what, kind, report
        part = "#/$defs/node" if what == "task" else "#/$defs/group"
        self._schema, self._all = schemas.validator("task-graph", part), schemas.members_validator("task-graph", part)
        self._wrong = 0

    def right(self, values: Mapping[str, Any]) -> AbstractSet[str]:
        """The names of values that are of this form, as far as that is seen at one look at many of them."""
        found: set[str] = set()
        left = iter(values.items())
        while batch := dict(itertools.islice(left, _LOOKED_AT_ONCE)):
            if self._all.obeys(batch):
                found.update(batch)
        return found

    def check(self, value: Any, path: Path) -> None:
        if self._schema.is_valid(value):
            return
        self._wrong += 1
        if self._wrong > _EXPLAINED_MAX:
            self._report.more(1)
            return
        # One may hold a million wrong values; a reader takes in a hundred at most.
        for error in itertools.islice(self._schema.findings(value), PROBLEMS_MAX):
            explain(error, path, self._report, self._kind == "extension")

    def check_template(
        self, label: str, task: Mapping[str, Any], labels: AbstractSet[str], groups: Mapping[str, GroupNode]
    ) -> list[tuple[Path, str]]:
        """Check what a `foreach` over results makes its tasks of; gives what these take, as `check_definition` does."""
        place: Path = ("tasks", label, "task", "payload")
        payload = task.get("payload")
        schema = schemas.validator("task-graph", "#/$defs/expandPayload")
        # One condition more in the schema itself is more than programs that make documents of it can follow.
        for error in itertools.islice(schema.iter_errors(payload), PROBLEMS_MAX):
            explain(error, place, self._report, self._kind == "extension")
        if isinstance(payload, dict) and ("values" in payload) == ("graph" in payload):
            message = f"{show(label)} is to make its tasks of `values`, or of a `graph`: of one of them."
            self._report.add(place, "no-template", message, "Write one of them.")
        node = task.get("each")
        if not isinstance(node, dict):
            if isinstance(payload, dict) and "values" in payload:
                message = f"{show(label)} makes a task of each value, and does not say which."
                self._report.add(("tasks", label, "task"), "no-template", message, "Write the task under `each`.")
            return []
        node.setdefault("task", {})
        if next(objects_with(EACH, node), None) is None:  # else its tasks are checked, which have the values
            self.check(node, ("tasks", label, "task", "each"))
        if not isinstance(node["task"], dict):
            return []
        check_keys(label, node["task"], self._report)
        return check_definition(label, node["task"], labels, groups, self._kind, self._report)

    def close(self) -> None:
        """Report a refusal by the schema of which no finding was reported."""
        if self._wrong and not self._report.count:
            message = f"A {self._what} is not of the form that the schema asks for."
            self._report.add((f"{self._what}s",), "schema", message, "See the schema.")


def check_groups(groups: Any, labels: frozenset[str], kind: Kind, report: Report) -> dict[str, GroupNode]:
    """Form, names, members and requirements of groups; gives the usable ones."""
    if not isinstance(groups, dict):
        return {}  # the envelope has said so
    check_labels(groups, report, groups=True)
    names = labels.union(groups)
    found: dict[str, GroupNode] = {}
    form = Form("group", kind, report)
    for name, group in groups.items():
        path: Path = ("groups", name)
        if name in labels:
            message = f"{show(name)} is both a task and a group."
            report.add(path, "name-clash", message, "Give the group another name: tasks and groups share their names.")
        form.check(group, path)
        if not isinstance(group, dict) or name in labels:
            continue
        inside = check_names(path, "tasks", group.get("tasks"), names, kind, report)
        requires = check_names(path, "requires", group.get("requires"), names, kind, report)
        if inside:
            wanted = requires if report.count else group.get("requires", ())
            most = group.get("maxInFlight", 0)
            whole = type(most) is int or (type(most) is float and most.is_integer())
            active, success = group.get("active", True), _success(group.get("success"))
            most = int(most) if whole else 0
            grows = group.get("grows") is True
            policy = group.get("failurePolicy")
            said = policy if isinstance(policy, str) and policy in _POLICIES else ""
            found[name] = GroupNode(name, tuple(inside), tuple(wanted), active, most, success, grows, said)
    form.close()
    return found


def _success(written: Any) -> Success | None:
    """When a group has succeeded; None also where that is not of the form that the schema asks for."""
    if not isinstance(written, dict):
        return None
    at_least = written.get("atLeast")
    if isinstance(at_least, float) and at_least.is_integer():
        at_least = int(at_least)
    if type(at_least) is int or (isinstance(at_least, str) and _SHARE.fullmatch(at_least)):
        return success_of({**written, "atLeast": at_least})
    return None


def check_policies(groups: Mapping[str, GroupNode], report: Report) -> None:
    """Report tasks whose groups say different things of which none is the innermost."""
    for name, said in grouping.policies(groups).items():
        if len(said) < 2:
            continue
        if not report.takes("failure-policy"):
            report.more(1)
            continue
        path = ("groups", name) if name in groups else ("tasks", name)
        message = f"{show(name)} is in groups with different failure policies, and none of these is in the other."
        report.add(path, "failure-policy", message, "Put one of the groups into the other: the innermost counts.")


def check_success(groups: Mapping[str, GroupNode], passing: grouping.Passing, report: Report) -> None:
    """Report groups that need more members than they have, or of which a failure is not passed on."""
    for name, group in groups.items():
        if group.success is None:
            continue
        path: Path = ("groups", name, "success")
        if stuck := passing.not_counted(name):
            message = f"{show(name)} may succeed though some of its tasks fail, and the graph does not go on then."
            if not passing.by_graph:
                message = f"{show(name)} counts failures, and one of {show(stuck[0])} is not passed on."
            remedy = "Set failurePolicy of the group to continue, or that of the graph, or remove `success`."
            report.add(path, "success", message, remedy)
        members = len(grouping.units(name, groups))
        if growing := [each for each in (name, *grouping.inner(name, groups)) if groups[each].grows]:
            message = f"{show(name)} counts its tasks, and an extension may put more into {show(growing[0])}."
            report.add(path, "success", message, "Remove `success`, or `grows`.")
        needs = group.success.needs(members)
        if needs > members:
            message = f"{show(name)} needs {needs:,} to complete, and has {members:,} to count."
            report.add((*path, "atLeast"), "success", message, f'Ask for {members:,} at most, or for a share: "95%".')

    counted: dict[str, str] = {}
    for name, group in groups.items():
        for each in grouping.units(name, groups) if group.success is not None else ():
            first = counted.setdefault(each, name)
            if first != name:
                # What one end of a task writes must fit a commit beside all that waits for it.
                message = f"{show(each)} would be counted by {show(first)} and by {show(name)}; one may count it."
                report.add(("groups", name, "success"), "success", message, "Put one of these groups into the other.")
                break


def check_nesting(labels: AbstractSet[str], groups: dict[str, GroupNode], report: Report) -> None:
    """Report groups that contain each other, which are then taken out of one another, and tasks in too many groups."""
    nested = {name: [each for each in group.tasks if each in groups] for name, group in groups.items()}
    for _ in range(_GROUP_CYCLES_MAX):  # each round takes a step out of every circle that was found
        for cycle, _, exact in list(graph_algorithms.cycles(nested)):
            first, second = cycle[0], cycle[1]
            if report.takes("group-cycle"):
                shown = " → ".join(_cut([show(name) for name in (*cycle, first)]))
                message = (
                    f"The groups contain each other in a circle ({'the shortest' if exact else 'one'} of "
                    f"{len(cycle):,}; → means contains): {shown}."
                )
                path = ("groups", first, "tasks", groups[first].tasks.index(second))
                report.add(path, "group-cycle", message, "Take one of these groups out of the other.")
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
            message = f"{show(label)} is in more than {limits.GROUPS_OF_TASK_MAX} groups, nested ones counted."
            remedy = "Take it out of some, or nest them less deeply."
            report.add(("tasks", label), "too-many-groups", message, remedy)


def too_limited(document: GraphDocument) -> list[str]:
    """Tasks that are under as many limits as they may be, so that none of their graph can come on top."""
    return _under_limits(document.tasks.keys(), document.groups, limits.LIMITS_OF_TASK_MAX)


def _under_limits(labels: AbstractSet[str], groups: Mapping[str, GroupNode], least: int) -> list[str]:
    limited = {name for name, group in groups.items() if group.max_in_flight}
    if len(limited) < least:
        return []
    return [
        label
        for label, inside in grouping.within(groups).items()
        if label in labels and len(limited.intersection(inside)) >= least
    ]


def check_limits(labels: AbstractSet[str], groups: Mapping[str, GroupNode], report: Report, *, whole: bool) -> None:
    """Tasks under too many limits, and too many limits. whole: the graph has one of its own."""
    limited = sum(bool(group.max_in_flight) for group in groups.values())
    if limited > limits.LIMITED_GROUPS_MAX:
        message = f"{limited:,} groups have maxInFlight; {limits.LIMITED_GROUPS_MAX} may in a graph."
        report.add(("groups",), "too-many-limits", message, "Put a limit on fewer groups.")
    for label in _under_limits(labels, groups, limits.LIMITS_OF_TASK_MAX - whole + 1):
        message = f"{show(label)} is under more than {limits.LIMITS_OF_TASK_MAX} limits, that of the graph counted."
        report.add(("tasks", label), "too-many-limits", message, "Take maxInFlight off some of its groups.")


def check_names(
    path: Path, key: Literal["requires", "tasks"], listed: Any, names: AbstractSet[str], kind: Kind, report: Report
) -> Sequence[str]:
    """Report names in a list of a task or group that stand twice, are its own or unknown; gives the usable ones."""
    if not listed or not isinstance(listed, list):
        return ()
    name = str(path[-1])
    try:
        once = set(listed)
    except TypeError:
        once = set()
    if len(once) == len(listed) and name not in once and names >= once:
        return listed
    what = "requirement" if key == "requires" else "member"
    path = (*path, key)
    verb = "requires" if what == "requirement" else "contains"
    seen: dict[str, None] = {}
    for index, each in enumerate(listed):
        if not isinstance(each, str):
            continue
        place = (*path, index)
        if each in seen:
            message = f"{show(name)} {verb} {show(each)} more than once."
            report.add(place, f"duplicate-{what}", message, "Name each label once.")
        elif each == name:
            report.add(place, f"self-{what}", f"{show(name)} {verb} itself.", "Remove it.")
        elif each not in names and (kind == "graph" or what == "member"):
            near = report.near(each, names, "unknown-label")
            message = f"{show(name)} {verb} {show(each)}, which is neither a task nor a group of this document.{near}"
            report.add(place, "unknown-label", message, "Correct the name, or add the task.")
        seen[each] = None
    return [each for each in seen if each in names and each != name]


def check_condition(
    label: str,
    node: Mapping[str, Any],
    optional: AbstractSet[str],
    policy: object,
    passing: grouping.Passing,
    report: Report,
    *,
    handed: bool,
) -> None:
    """Report conditions that nothing can meet. handed: a group of the task requires something for it."""
    when, requires = node.get("when", When.ALL_COMPLETED), node.get("requires")
    conditional = when != When.ALL_COMPLETED
    if not conditional and not optional:
        return
    if policy not in _POLICIES or when not in _CONDITIONS:
        return  # an unknown word, which the schema reports
    path: Path = ("tasks", label, "when" if conditional else "requires")
    names = [each for each in named(requires)[0] if isinstance(each, str)] if isinstance(requires, list) else []
    stuck = [] if passing.by_graph else passing.not_learned(label, names, optional, when)
    if stuck or (passing.by_graph and policy != FailurePolicy.CONTINUE):
        what = f"`when: {show(when)}`" if conditional else "optional requirements"
        message = (
            f"{show(label)} has {what}, which needs failurePolicy: continue; "
            f"under {show(policy)} no task learns how a requirement failed."
        )
        remedy = 'Add "failurePolicy": "continue" to the document, or remove the condition.'
        if not passing.by_graph:
            message = f"{show(label)} has {what}, and a failure of {show(stuck[0])} is not passed on to it."
            remedy = f'Put {show(stuck[0])} into a group with "failurePolicy": "continue", or remove the condition.'
        report.add(path, "needs-continue", message, remedy)
    elif conditional and not requires and not handed:
        message = f"{show(label)} has `when: {show(when)}` and requires nothing."
        report.add(path, "needless-condition", message, "Name what it waits for in `requires`, or remove `when`.")
    elif when == When.ANY_FAILED and isinstance(requires, list) and len(optional) == len(requires) and not handed:
        message = (
            f"{show(label)} runs when a requirement failed, and all of its requirements are optional: their failing "
            "does not matter, so it would never run."
        )
        report.add(path, "needless-condition", message, "Let at least one requirement not be optional.")


def check_definition(
    label: str,
    task: dict[str, Any],
    labels: AbstractSet[str],
    groups: Mapping[str, GroupNode],
    kind: Kind,
    report: Report,
) -> list[tuple[Path, str]]:
    """Check references and size; gives places and names of the `$result` references of the right form."""
    taken: list[tuple[Path, str]] = []
    try:
        text = canonical_json(task)
    except (ValueError, TypeError):
        return taken  # a number that is none: reported already, and its size is of no interest
    if '"$' in text:
        if references.SUBS_KEY in text or references.RESULT_KEY in text or references.FILE_KEY in text:
            found = _check_references(label, task.get("payload"), labels, groups, kind, report, taken)
            if found:
                text = canonical_json(references.substitute(task, lambda _: references.STAND_IN, lenient=True))
        if f'"{SECRET}"' in text:
            _check_secrets(label, task, report)
    if task.get("executor") == "kubernetes":
        _check_pod(label, task.get("payload"), report)
    units = len(text) if len(text) <= limits.DEFINITION_CHARS_MAX // 2 else utf16_units(text)
    if units > limits.DEFINITION_CHARS_MAX:
        most = f"{limits.DEFINITION_CHARS_MAX:,}"
        message = f"The definition of {show(label)} has {units:,} UTF-16 units as JSON; {most} fit."
        remedy = "Put the data into a file or blob, and its address into the payload."
        report.add(("tasks", label, "task"), "too-large", message, remedy)
    return taken


def _check_secrets(label: str, task: dict[str, Any], report: Report) -> None:
    """Report secrets of a wrong form, and those that stand where a built-in executor puts none in."""
    if task.get("executor") not in (None, *(references.BUILT_IN_EXECUTORS - {"noop"})):
        return
    commands, is_call = is_command(task), task.get("executor") == "http"

    def check(here: dict[str, Any], path: Path, depth: int, text: bool) -> Any:
        if not (commands and text and path[4:5] == ("env",)) and not (is_call and path[4:5] == ("headers",)):
            message = f"A secret of {show(label)} stands where none is put in."
            remedy = "Put it into payload.env of a command: arguments of programs can be read by other users."
            if is_call:
                remedy = "Put it into payload.headers: addresses and bodies are kept in many places."
            report.add(path, "misplaced-secret", message, remedy)
        elif secret_named(here) is None:
            message = f'A `$secret` object of {show(label)} is not of the form {{"$secret": "<name>"}}.'
            remedy = "A name is a letter, followed by letters, digits, _ and -, 64 characters at most."
            report.add(path, "bad-secret", message, remedy)
        return here

    replaced(task, SECRET, check, path=("tasks", label, "task"), payload_alone=True)


def _check_pod(label: str, payload: Any, report: Report) -> None:
    """Report what needs the folder of a worker, which a pod does not share."""
    found = [(key,) for key in OF_FOLDER if isinstance(payload, dict) and key in payload]
    for path in [*found, *(path for path, here in references.reference_objects(payload) if FILE in here)]:
        what = show(path[0]) if len(path) == 1 else f"`{FILE}`"
        message = f"{show(label)} runs in a pod, which shares no folder with its worker, and has {what}."
        remedy = "Leave it out: results are taken by `$result`, and files by way of a volume or a store."
        report.add(("tasks", label, "task", "payload", *path), "not-in-a-pod", message, remedy)


def _check_references(
    label: str,
    payload: Any,
    labels: AbstractSet[str],
    groups: Mapping[str, GroupNode],
    kind: Kind,
    report: Report,
    taken: list[tuple[Path, str]],
) -> bool:
    """Whether there is any reference; those of `$result` that are right go into `taken`."""
    found = False
    for path, here in references.reference_objects(payload):
        found = True
        place: Path = ("tasks", label, "task", "payload", *path)
        if key := outputs.taking_key(here):
            why = outputs.wrong_form(here) if path else "it is the payload itself"
            if why:
                form, remedy, code = _FORMS[key]
                message = f"A `{key}` object of {show(label)} is not of the form {form} ({why})."
                report.add(place, code, message, remedy if path else "Put the reference inside the payload.")
                continue
            named_label, remedy = str(here[key]), "Correct the label, or add the task."
        else:
            name = here[SUBS]
            if not path:
                message = "The payload itself is a `$subs` object."
                report.add(place, "bad-subs", message, "Put the reference inside the payload.")
                continue
            if len(here) != 1 or not isinstance(name, str) or not name.startswith(SUBS_PREFIX):
                form = '{"$subs": "taskId:<label>"}'
                odd = next((key for key in here if key != SUBS), None)
                why = f"the value is {show(name)}" if odd is None else f"it also has {show(odd)}"
                message = f"A `$subs` object of {show(label)} is not of the form {form} ({why})."
                report.add(place, "bad-subs", message, f"Write {form}, with nothing beside it.")
                continue
            key, named_label = SUBS, name.removeprefix(SUBS_PREFIX)
            remedy = "Correct the label after `taskId:`, or add the task."
        of_group = key == RESULT and named_label in groups
        if named_label in labels or of_group or (kind == "extension" and is_label(named_label)):
            if key != SUBS:
                taken.append(((*place, key), named_label))
            continue
        near = report.near(named_label, labels, "unknown-label")
        message = f"{show(label)} refers to {show(named_label)}, which is not a task of this document.{near}"
        report.add((*place, key), "unknown-label", message, remedy)
    return found


def check_results(
    results: Sequence[tuple[str, Sequence[tuple[Path, str]]]],
    requirements: Mapping[str, Sequence[str]],
    labels: AbstractSet[str],
    groups: Mapping[str, GroupNode],
    kind: Kind,
    report: Report,
) -> None:
    """Report tasks that take an output of a task or group which they do not require, directly or not.

    Outputs of tasks of the graph that is extended are checked when the extension is planned.
    """
    asked = {label: [grouping.done(used, groups) for _, used in taken] for label, taken in results}
    missing = references.without_requirement(asked, requirements)
    for label, taken in results:
        for path, used in taken:
            known = used in labels or used in groups
            if grouping.done(used, groups) not in missing.get(label, ()) or (kind == "extension" and not known):
                continue
            message = f"{show(label)} uses what {show(used)} hands on, which it does not require, directly or not."
            remedy = f"Add {show(used)} to `requires` of {show(label)}."
            report.add(path, "not-required", message, remedy if used != label else "Name a task that comes before it.")


def check_cycles(
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
        message = (
            f"The tasks require each other in a circle ({'the shortest' if exact else 'one'} of {what}; "
            f"→ means requires): {shown}.{more}"
        )
        report.add(_place_of(first, second, obj, nodes), "cycle", message, "Remove one of these requirements.")


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
    if len(shown) > _CYCLE_LABELS_SHOWN:
        left = len(shown) - _CYCLE_LABELS_SHOWN
        shown[_CYCLE_LABELS_SHOWN - 2 : -2] = [f"… ({left:,} more) …"]
    return shown
