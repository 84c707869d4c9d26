"""HTCondor's DAGMan: a task for each node, and what the commands of the file say of it.

RETRY becomes reruns; PRIORITY one of five levels; CATEGORY with MAXJOBS a limit; FINAL a task that runs in any case; a
node that is DONE counts as satisfied. Splices are read where they lie and put in; a sub-DAG is one task. What the
submit file, scripts and VARS say is kept as information.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.importers.shaping import Foreign, Imported, Reader, Shape
from taskgraph.documents.problems import nearest
from taskgraph.model import limits
from taskgraph.model.json_strict import show

_DEPTH_MAX: Final = 20  # of splices and included files
_VARIABLE: Final = re.compile(r'(?<!\w)(\w++)\s*+=\s*+"((?:[^"\\]|\\.)*+)"')
_NODES: Final = frozenset({"JOB", "NODE", "FINAL", "PROVISIONER", "SERVICE"})
_REMEDY: Final = "Correct the line, as DAGMan would read it."
_ALL: Final = "ALL_NODES"
_IGNORED: Final = frozenset({
    "CONFIG", "DOT", "ENV", "JOBSTATE_LOG", "NODE_STATUS_FILE", "REJECT", "SET_JOB_ATTR", "SAVE_POINT_FILE",
    "SUBMIT-DESCRIPTION",
})  # fmt: skip
_LEFT_OUT: Final = frozenset({"ABORT-DAG-ON", "PRE_SKIP", "CONNECT", "PIN_IN", "PIN_OUT"})


@dataclass(slots=True)
class _Node:
    line: int
    kind: str
    payload: dict[str, Any]
    done: bool = False
    reruns: int = 0
    priority: int = 0
    category: str = ""


@dataclass(slots=True)
class _Dag:
    """What one file comes to. parents: by node. splices: nodes by the name of a splice. most: limits by category."""

    nodes: dict[str, _Node] = field(default_factory=dict)
    parents: dict[str, dict[str, None]] = field(default_factory=dict)
    splices: dict[str, list[str]] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    finals: list[str] = field(default_factory=list)

    def first(self, name: str) -> list[str]:
        inside = self.splices.get(name)
        if inside is None:
            return [name]
        members = set(inside)
        return [node for node in inside if members.isdisjoint(self.parents.get(node, ()))]

    def last(self, name: str) -> list[str]:
        inside = self.splices.get(name)
        if inside is None:
            return [name]
        waited_for = {parent for node in inside for parent in self.parents.get(node, ())}
        return [node for node in inside if node not in waited_for]


def convert(foreign: Foreign) -> Imported:
    reader = Reader(foreign.source)
    dag = _Reading(foreign, reader).read(foreign.text, foreign.source, 0)
    reader.stop_if_any()
    return _shaped(dag, reader)


class _Reading:
    def __init__(self, foreign: Foreign, reader: Reader) -> None:
        self._foreign = foreign
        self._reader = reader
        self._left_out: dict[str, None] = {}

    def read(self, text: str, name: str, depth: int) -> _Dag:
        dag = _Dag()
        self._into(dag, text, name, depth)
        if depth == 0:
            self._reader.note_names(self._left_out, "Commands that were left out")
        return dag

    def _into(self, dag: _Dag, text: str, name: str, depth: int) -> None:
        """Commands that name nodes are read after those that make them, wherever they stand."""
        later = []
        for number, line in _lines(text):
            words = line.split()
            command = words[0].upper()
            if command in _NODES or command in ("SUBDAG", "SPLICE", "DATA") or command == "INCLUDE":
                self._node(dag, command, words, number, depth, name)
            else:
                later.append((number, command, words, line))
        for number, command, words, line in later:
            try:
                self._command(dag, command, words, line)
            except (IndexError, ValueError) as error:
                said = str(error) if isinstance(error, _Unknown) else f"{command} is not complete: {show(line)}"
                self._say(name, number, said)

    def _say(self, name: str, number: int, message: str, remedy: str = _REMEDY) -> None:
        where = "" if name == self._foreign.source else f" (in {name}, line {number})"
        line = number if name == self._foreign.source else None
        self._reader.problem((), "syntax", f"{message}{where}.", remedy, line)

    def _node(self, dag: _Dag, command: str, words: list[str], number: int, depth: int, source: str) -> None:
        if command == "SUBDAG" and len(words) > 1 and words[1].upper() == "EXTERNAL":
            words = [*words[:1], *words[2:]]
        if len(words) < (2 if command == "INCLUDE" else 3):
            self._say(source, number, f"{command} is not complete: {show(' '.join(words))}")
            return
        if command in ("SPLICE", "INCLUDE"):
            self._file(dag, command, words, depth, (source, number))
            return
        options = [word.upper() for word in words[3:]]
        payload: dict[str, Any] = {"submitFile": words[2]} if words[2] != "{" else {}
        if "DIR" in options[:-1]:
            payload["directory"] = words[3 + options.index("DIR") + 1]
        if command == "SUBDAG":
            payload = {"dagFile": words[2], **payload}
            payload.pop("submitFile", None)
            self._reader.note("A sub-DAG is one task: import its file as a graph of its own.")
        if words[1] in dag.nodes or words[1] in dag.splices:
            self._say(source, number, f"Two nodes are called {show(words[1])}")
        line = number if source == self._foreign.source else 0
        dag.nodes[words[1]] = _Node(line, command, payload, done="DONE" in options)
        if command == "FINAL":
            dag.finals.append(words[1])

    def _file(self, dag: _Dag, command: str, words: list[str], depth: int, place: tuple[str, int]) -> None:
        path = words[-1] if command == "INCLUDE" else words[2]
        if len(words) > 4 and words[3].upper() == "DIR":
            path = f"{words[4]}/{path}"
        text = self._foreign.beside(path) if depth < _DEPTH_MAX else None
        if text is None:
            self._say(*place, f"{command} names {show(path)}, which is not given", "Put that file beside this one.")
            return
        if command == "INCLUDE":
            self._into(dag, text, path, depth + 1)
            return
        inner = self.read(text, path, depth + 1)
        prefix = f"{words[1]}+"
        inside = [node for node in inner.nodes if node not in inner.finals]
        dag.splices[words[1]] = [prefix + node for node in inside]
        for node in inside:
            dag.nodes[prefix + node] = inner.nodes[node]
            dag.parents[prefix + node] = {prefix + parent: None for parent in inner.parents.get(node, ())}
            category = inner.nodes[node].category
            if category and not category.startswith("+"):  # with a plus it is one for all splices
                inner.nodes[node].category = prefix + category
        for name, members in inner.splices.items():
            dag.splices[prefix + name] = [prefix + member for member in members]
        for category, most in inner.most.items():
            dag.most.setdefault(category if category.startswith("+") else prefix + category, most)

    def _command(self, dag: _Dag, command: str, words: list[str], line: str) -> None:
        match command:
            case "PARENT":
                split = [word.upper() for word in words].index("CHILD")
                parents = [last for name in words[1:split] for last in dag.last(_known(dag, name))]
                for name in words[split + 1 :]:
                    for child in dag.first(_known(dag, name)):
                        dag.parents.setdefault(child, {}).update(dict.fromkeys(parents))
            case "RETRY":
                for node in _named(dag, words[1]):
                    node.reruns = int(words[2])
            case "PRIORITY":
                for node in _named(dag, words[1]):
                    node.priority = int(words[2])
            case "CATEGORY":
                for node in _named(dag, words[1]):
                    node.category = words[2]
            case "MAXJOBS":
                dag.most[words[1]] = int(words[2])
            case "DONE":
                for node in _named(dag, words[1]):
                    node.done = True
            case "VARS":
                found = {name: text.replace('\\"', '"') for name, text in _VARIABLE.findall(line)}
                for node in _named(dag, words[1]):
                    node.payload.setdefault("vars", {}).update(found)
            case "SCRIPT":
                rest = words[3:] if words[1].upper() != "DEFER" else words[6:]
                kind = words[1] if words[1].upper() != "DEFER" else words[4]
                name = words[2] if words[1].upper() != "DEFER" else words[5]
                for node in _named(dag, name):
                    node.payload[f"{kind.lower()}Script"] = " ".join(rest)
            case _ if command in _IGNORED:
                pass
            case _ if command in _LEFT_OUT:
                self._left_out[command] = None
            case _:
                raise _Unknown(f"DAGMan has no command {show(words[0])}")


class _Unknown(ValueError):
    pass


def _known(dag: _Dag, name: str) -> str:
    if name in dag.nodes or name in dag.splices:
        return name
    near = "".join(f"; {show(one)} comes near" for one in nearest(name, [*dag.nodes, *dag.splices], 1))
    raise _Unknown(f"There is no node {show(name)}{near}")


def _named(dag: _Dag, name: str) -> Iterable[_Node]:
    if name.upper() == _ALL:
        return list(dag.nodes.values())
    return [dag.nodes[node] for node in dag.splices.get(_known(dag, name), [name])]


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with commands; what stands in braces after a node describes its submission, and is passed over."""
    made = []
    until = ""
    for number, line in enumerate(re.sub(r"\\\n", "\0", text).split("\n"), 1):
        bare = line.replace("\0", " ").strip()
        if until:
            until = "" if bare == until else until
        elif bare and not bare.startswith("#"):
            made.append((number, bare))
            if (opened := re.search(r"@=(\w+)$", bare)) is not None:
                until = f"@{opened.group(1)}"
            elif bare.endswith("{"):
                until = "}"
    return made


def _shaped(dag: _Dag, reader: Reader) -> Imported:
    shape = Shape()
    labels = {name: reader.label(name) for name, node in dag.nodes.items() if not node.done}
    ends = set(labels) - set(dag.finals) - {parent for parents in dag.parents.values() for parent in parents}
    levels = _levels({node.priority for node in dag.nodes.values()})
    for name, label in labels.items():
        node = dag.nodes[name]
        parents = [each for each in labels if each in ends] if name in dag.finals else dag.parents.get(name, {})
        made: dict[str, Any] = {"requires": [labels[each] for each in parents if each in labels]}
        if name in dag.finals and made["requires"]:
            made["when"] = "always"
        if node.reruns:
            made["reruns"] = min(node.reruns, limits.RERUNS_MAX)
        if node.priority:
            made["priority"] = levels[node.priority]
        made["task"] = {"executor": "noop", "payload": node.payload}
        shape.tasks[label], shape.places[label] = made, node.line
    for category in dict.fromkeys(node.category for node in dag.nodes.values() if node.category in dag.most):
        members = [label for name, label in labels.items() if dag.nodes[name].category == category]
        shape.limit(f"category {category}", members, dag.most[category], reader)
    if dag.finals:
        shape.whole["failurePolicy"] = "continue"
    if any(node.priority for node in dag.nodes.values()):
        reader.note("Of priorities the order was kept, in five levels: above 0 are high and highest.")
    done = len(dag.nodes) - len(labels)
    reader.note_count(done, "One node is done, and was left out.", "{} nodes are done, and were left out.")
    return reader.shaped(shape)


def _levels(priorities: Iterable[int]) -> dict[int, str]:
    """The greater half of those above 0 is highest, the other half high; and so below 0."""
    above = sorted(number for number in priorities if number > 0)
    below = sorted((number for number in priorities if number < 0), reverse=True)
    made = {number: "highest" if index >= len(above) / 2 else "high" for index, number in enumerate(above)}
    return made | {number: "lowest" if index >= len(below) / 2 else "low" for index, number in enumerate(below)}
