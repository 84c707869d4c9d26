"""What stands plainly in the file of an Airflow DAG, read by `ast`: nothing of it is run.

Operators with a literal `task_id`, `>>` and `<<`, lists, `chain`, `cross_downstream`, `set_upstream`, `set_downstream`,
task groups by `with`, and calls of `@task` functions. A task or an order that a loop, a condition or a function of the
file's own would make is a problem: what runs the file can export its DAG instead.
"""

import ast
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.importers.shaping import Foreign, Reader
from taskgraph.documents.problems import nearest
from taskgraph.model.json_strict import show

_EXPORT: Final = (
    "Export the DAG where Airflow runs: `airflow dags show DAG --save dag.dot`, or `SerializedDAG.to_dict`."
)
_ORDERS: Final = frozenset({"chain", "cross_downstream", "chain_linear"})
_SETS: Final = {"set_upstream": True, "set_downstream": False}
_NO_DATA: Final = frozenset({"dag", "task_group", "task_id", "default_args"})  # arguments that make no order
_SAID: Final = ("retries", "trigger_rule", "bash_command")
_SPANS: Final = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}

_Things = list[str]  # ids of tasks, and of task groups behind a mark
_GROUP: Final = "group:"


@dataclass(slots=True)
class Task:
    line: int
    said: dict[str, Any]
    upstream: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Dag:
    dag_id: str = ""
    tasks: dict[str, Task] = field(default_factory=dict)
    max_active_tasks: Any = None
    said: dict[str, Any] = field(default_factory=dict)  # default_args
    groups: dict[str, list[str]] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)

    def ends(self, thing: str, *, last: bool) -> list[str]:
        """The task itself; of a group the tasks that nothing in it comes after, or before."""
        if not thing.startswith(_GROUP):
            return [thing]
        inside = dict.fromkeys(self.groups[thing])
        bound = {(a if last else b) for a, b in self.edges if a in inside and b in inside}
        return [name for name in inside if name not in bound]


def looks_like_python(text: str) -> bool:
    return any(line.startswith(("import ", "from ", "with ", "@", "def ")) for line in text.splitlines())


def read(foreign: Foreign, reader: Reader) -> Dag:
    """The DAG of a file, or the one that the goal names. Raises InvalidGraph."""
    try:
        tree = ast.parse(foreign.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        reader.problem((), "syntax", f"This is not Python: {error}.", "Correct the file, or choose another.", line)
        reader.stop_if_any()
        raise
    reading = _Reading(reader)
    try:
        reading.body(tree.body, None)
    except RecursionError:
        reader.problem((), "depth", "The file is nested too deep to be read.", _EXPORT)
        reader.stop_if_any()
        raise
    found = [dag for dag in reading.dags if dag.tasks] or reading.dags
    if foreign.goals:
        wanted = [dag for dag in found if dag.dag_id in foreign.goals]
        if not wanted:
            names = [dag.dag_id for dag in found]
            near = "".join(f" Did you mean {show(one)}?" for one in nearest(foreign.goals[0], names, 1))
            reader.problem((), "unknown-label", f"There is no DAG {show(foreign.goals[0])}.{near}", _EXPORT)
        found = wanted
    elif len(found) > 1:
        names = [dag.dag_id for dag in found]
        reader.problem((), "several", "The file holds several DAGs.", f"Name one by --goal: {', '.join(names[:10])}.")
    elif not found:
        reader.problem((), "missing", "The file holds no DAG that stands there plainly.", _EXPORT)
    reader.stop_if_any()
    dag = found[0]
    for before, after in [
        (a, b) for up, down in dag.edges for a in dag.ends(up, last=True) for b in dag.ends(down, last=False)
    ]:
        dag.tasks[after].upstream[before] = None
    return dag


class _Reading:
    """Goes through statements in their order, and knows what each name stands for."""

    def __init__(self, reader: Reader) -> None:
        self.dags: list[Dag] = []
        self._reader = reader
        self._things: dict[str, _Things] = {}
        self._constants: dict[str, Any] = {}
        self._by_name: dict[str, Dag] = {}
        self._taskflow: dict[str, str] = {}  # function -> task_id
        self._builders: set[str] = set()  # functions that make tasks or order when they are called
        self._prefix = ""
        self._open: list[str] = []

    def body(self, statements: Iterable[ast.stmt], dag: Dag | None) -> None:
        for statement in statements:
            match statement:
                case ast.With():
                    self._with(statement, dag)
                case ast.Assign(targets=[*targets], value=value):
                    self._assign(targets, value, dag)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign([target], value, dag)
                case ast.Expr(value=value):
                    self._things_of(value, dag)
                case ast.Return(value=ast.expr() as value):
                    self._things_of(value, dag)
                case ast.FunctionDef():
                    self._function(statement, dag)
                case _ if self._makes(statement):
                    kinds = {ast.For: "loop", ast.While: "loop", ast.If: "condition"}
                    kind = kinds.get(type(statement), "block")
                    self._refuse(statement, f"A {kind} makes tasks or their order, and nothing of the file is run.")

    def _refuse(self, node: ast.AST, message: str) -> None:
        self._reader.problem((), "not-plain", message, _EXPORT, getattr(node, "lineno", None))

    def _makes(self, node: ast.AST) -> bool:
        """Whether what is inside would make tasks, or put those that are known into an order."""
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                name = _called(each)
                if _keyword(each, "task_id") is not None or name in _ORDERS or name in _SETS:
                    return True
                if name in self._taskflow or name in self._builders:
                    return True
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.RShift | ast.LShift):
                known = (side for side in ast.walk(each) if isinstance(side, ast.Name) and side.id in self._things)
                if any(known):
                    return True
        return False

    def _function(self, node: ast.FunctionDef, dag: Dag | None) -> None:
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            words = _dotted(call.func if call else decorator)
            if words[-1:] == ["dag"]:
                made = self._dag(call, node.name)
                self.body(node.body, made)
                return
            if words[:1] == ["task"] or words[-1:] == ["task"]:
                literal = self._constant(_keyword(call, "task_id")) if call else None
                self._taskflow[node.name] = literal if isinstance(literal, str) else node.name
                return
        if node.decorator_list or self._makes(node):  # such as @task_group, @setup, or one of the file's own
            self._builders.add(node.name)

    def _dag(self, call: ast.Call | None, name: str = "") -> Dag:
        dag = Dag(name)
        if call is not None:
            literal = self._constant(_keyword(call, "dag_id") or next(iter(call.args), None))
            dag.dag_id = literal if isinstance(literal, str) else name or f"(DAG of line {call.lineno})"
            dag.max_active_tasks = self._constant(_keyword(call, "max_active_tasks") or _keyword(call, "concurrency"))
            said = self._constant(_keyword(call, "default_args"))
            dag.said = {key: said[key] for key in _SAID if key in said} if isinstance(said, dict) else {}
        self.dags.append(dag)
        return dag

    def _constant(self, node: ast.expr | None) -> Any:
        """The value of a literal, or of a name that stands for one; None for what would have to be run."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._constants.get(name)
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return {key.value: self._constant(value) for key, value in pairs if isinstance(key, ast.Constant)}
            case ast.Attribute(attr=name) if name.isupper():  # TriggerRule.ALL_DONE
                return name.lower()
        return None

    def _assign(self, targets: list[ast.expr], value: ast.expr, dag: Dag | None) -> None:
        constant = self._constant(value)
        opened = self._dag(value) if isinstance(value, ast.Call) and _called(value) == "DAG" else None
        several = isinstance(value, ast.Tuple) and all(isinstance(target, ast.Tuple) for target in targets)
        if several:
            for target in targets:
                for name, each in zip(target.elts, value.elts, strict=False):  # type: ignore[attr-defined]
                    self._assign([name], each, dag)
            return
        things = self._things_of(value, dag) if opened is None else []
        for target in targets:
            if isinstance(target, ast.Name):
                if opened is not None:
                    self._by_name[target.id] = opened
                elif things:
                    self._things[target.id] = things
                elif constant is not None:
                    self._constants[target.id] = constant

    def _with(self, node: ast.With, dag: Dag | None) -> None:
        before, opened = self._prefix, len(self._open)
        for item in node.items:
            call, name = item.context_expr, item.optional_vars
            if isinstance(call, ast.Name) and call.id in self._by_name:
                dag = self._by_name[call.id]
            elif isinstance(call, ast.Call) and _called(call) == "DAG":
                dag = self._dag(call)
                if isinstance(name, ast.Name):
                    self._by_name[name.id] = dag
            elif isinstance(call, ast.Call) and _called(call) == "TaskGroup" and dag is not None:
                literal = self._constant(_keyword(call, "group_id") or next(iter(call.args), None))
                if not isinstance(literal, str):
                    self._refuse(call, "The name of a task group is computed.")
                    literal = f"line {call.lineno}"
                if self._constant(_keyword(call, "prefix_group_id")) is not False:
                    self._prefix = f"{self._prefix}{literal}."
                group = f"{_GROUP}{before}{literal}"
                dag.groups[group] = []
                self._open.append(group)
                if isinstance(name, ast.Name):
                    self._things[name.id] = [group]
        self.body(node.body, dag)
        self._prefix = before
        del self._open[opened:]

    def _things_of(self, node: ast.expr | None, dag: Dag | None) -> _Things:
        """The tasks and groups that an expression stands for; makes those that it makes, and their order."""
        match node:
            case ast.Name(id=name):
                return self._things.get(name, [])
            case ast.List(elts=members) | ast.Tuple(elts=members) | ast.Set(elts=members):
                return [thing for member in members for thing in self._things_of(member, dag)]
            case ast.Dict(values=members):
                return [thing for member in members for thing in self._things_of(member, dag)]
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
                return self._things_of(inner, dag)
            case ast.BinOp(left=left, op=ast.RShift() | ast.LShift() as way, right=right):
                return self._shifted(left, right, isinstance(way, ast.RShift), dag)
            case ast.Call():
                return self._call(node, dag)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() | ast.IfExp() if self._makes(
                node
            ):
                self._refuse(
                    node, "A loop or a condition in an expression makes tasks, and nothing of the file is run."
                )
        return []

    def _shifted(self, left: ast.expr, right: ast.expr, down: bool, dag: Dag | None) -> _Things:
        before, after = self._things_of(left, dag), self._things_of(right, dag)
        if _called(right) == "Label":
            return before
        if _called(left) == "Label":
            return after
        for side, things, other in ((left, before, after), (right, after, before)):
            if not things and other and not (isinstance(side, ast.List | ast.Tuple) and not side.elts):
                self._refuse(side, f"{show(ast.unparse(side)[:80])} is no task that stands plainly in the file.")
        self._order(before, after, dag) if down else self._order(after, before, dag)
        return after

    def _order(self, before: _Things, after: _Things, dag: Dag | None) -> None:
        for each in self.dags if dag is None else [dag]:
            known = each.tasks.keys() | each.groups.keys()
            each.edges += [(a, b) for a in before for b in after if a in known and b in known]

    def _call(self, call: ast.Call, dag: Dag | None) -> _Things:
        name = _called(call)
        if name in _ORDERS:
            steps: list[_Things] = []
            for argument in call.args:
                things = self._things_of(argument, dag)
                if not things and _called(argument) != "Label":
                    shown = show(ast.unparse(argument)[:80])
                    self._refuse(argument, f"{shown} is no task that stands plainly in the file.")
                steps += [[thing] for thing in things] if isinstance(argument, ast.Starred) else [things]
            steps = [step for step in steps if step]
            for before, after in itertools.pairwise(steps):
                paired = name == "chain" and len(before) == len(after) > 1
                for a, b in zip(before, after, strict=False) if paired else [(None, None)]:
                    self._order([a], [b], dag) if a and b else self._order(before, after, dag)
            return steps[-1] if steps else []
        if isinstance(call.func, ast.Attribute) and name in _SETS:
            this, other = self._things_of(call.func.value, dag), self._things_of(next(iter(call.args), None), dag)
            self._order(other, this, dag) if _SETS[name] else self._order(this, other, dag)
            return []
        if _keyword(call, "task_id") is not None and name != "override":
            return self._operator(call, name, dag)
        function, literal = self._taskflow_of(call)
        if function is not None:
            upstream = [thing for each in _arguments(call) for thing in self._things_of(each, dag)]
            return self._task(call, literal or function, {"operator": "@task"}, upstream, dag)
        if name in self._builders:
            self._refuse(call, f"{show(name)} makes tasks or their order, and nothing of the file is run.")
            return []
        if isinstance(call.func, ast.Attribute) and name in ("expand", "expand_kwargs", "as_setup", "as_teardown"):
            found = self._things_of(call.func.value, dag)
            upstream = [thing for each in _arguments(call) for thing in self._things_of(each, dag)]
            self._order(upstream, found, dag)
            if name.startswith("expand"):
                self._reader.note_names(
                    found, "Mapped tasks are one task each: their number is known only when they run"
                )
            return found
        for each in _arguments(call):  # tasks may be made inside of a call that is nothing to us
            self._things_of(each, dag)
        return []

    def _taskflow_of(self, call: ast.Call) -> tuple[str | None, str | None]:
        """The task_id of the `@task` function that is called, and the one that `.override` gives it."""
        literal: Any = None
        func: ast.expr = call.func
        while isinstance(func, ast.Attribute | ast.Call):
            if isinstance(func, ast.Call):
                literal = literal or self._constant(_keyword(func, "task_id"))
                func = func.func
            elif func.attr in ("expand", "partial", "override", "expand_kwargs"):
                func = func.value
            else:
                return None, None
        function = self._taskflow.get(func.id) if isinstance(func, ast.Name) else None
        plain = not (isinstance(call.func, ast.Attribute) and call.func.attr in ("override", "partial"))
        return (function, literal) if plain else (None, None)

    def _operator(self, call: ast.Call, name: str, dag: Dag | None) -> _Things:
        literal = self._constant(_keyword(call, "task_id"))
        if not isinstance(literal, str):
            self._refuse(call, "The task_id of an operator is computed.")
            return []
        said = {key: self._constant(_keyword(call, key)) for key in _SAID if _keyword(call, key) is not None}
        said["operator"] = name if name != "partial" else _dotted(call.func)[0]
        if isinstance(span := _keyword(call, "execution_timeout"), ast.Call):
            parts = [(each.arg, self._constant(each.value)) for each in span.keywords]
            if all(unit in _SPANS and isinstance(number, int | float) for unit, number in parts):
                said["execution_timeout"] = sum(_SPANS[str(unit)] * number for unit, number in parts)
        whose = _keyword(call, "dag")
        dag = self._by_name.get(whose.id, dag) if isinstance(whose, ast.Name) else dag
        data = [each.value for each in call.keywords if each.arg not in _NO_DATA]
        return self._task(call, literal, said, [thing for each in data for thing in self._things_of(each, dag)], dag)

    def _task(self, call: ast.Call, name: str, said: dict[str, Any], upstream: _Things, dag: Dag | None) -> _Things:
        if dag is None and len(self.dags) == 1:
            dag = self.dags[0]  # its tasks may come from a name that is set elsewhere
        if dag is None:
            self._refuse(call, f"The task {show(name)} is of no DAG that stands plainly in the file.")
            return []
        made = f"{self._prefix}{name}"
        if made in dag.tasks and said.get("operator") == "@task":
            made += f"__{sum(each.startswith(f'{made}__') for each in dag.tasks) + 1}"
        elif made in dag.tasks:
            self._reader.problem((), "duplicate-label", f"Two tasks are called {show(made)}.", _EXPORT, call.lineno)
        dag.tasks[made] = Task(call.lineno, {**dag.said, **said})
        for group in self._open:
            dag.groups[group].append(made)
        self._order(upstream, [made], dag)
        return [made]


def _dotted(node: ast.expr) -> list[str]:
    words: list[str] = []
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute):
            words.insert(0, node.attr)
            node = node.value
        else:
            node = node.func
    return [node.id, *words] if isinstance(node, ast.Name) else words


def _called(node: ast.expr) -> str:
    """The last word of what is called; "" where nothing is."""
    words = _dotted(node.func) if isinstance(node, ast.Call) else []
    return words[-1] if words else ""


def _keyword(call: ast.Call | None, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None) if call is not None else None


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]
