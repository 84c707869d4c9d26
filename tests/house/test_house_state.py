"""State that is not passed in: the few names of modules that hold any are listed, each with its reason."""

import ast
from pathlib import Path

import taskgraph

PACKAGE = Path(taskgraph.__file__).parent
SOURCES = {
    path.relative_to(folder).as_posix(): path
    for folder in (PACKAGE, PACKAGE.parent / "functions_host")
    for path in folder.rglob("*.py")
}

KNOWN = {
    "worker/executors/children.py": {"_readers"},  # what belongs to an event loop, by event loop
    "interfaces/client/calls.py": {"building"},  # the graph whose block is entered in this context
    "interfaces/operations/checks.py": {"_ASKING"},  # who asks, in this context: a server asks for many
    "worker/executors/orphans.py": {"_guards"},  # the guards that this process has started, which must end with it
    "worker/executors/printed.py": {"_run"},  # the run whose output is printed in this context
    "model/clock.py": {"_drawn"},  # ids that are not used yet, for speed alone: a fork forgets them
    "storage/checks.py": {"_good_names"},  # names that were found right: a memory, for speed alone
    "storage/sqlite/tables.py": {"_written"},  # texts of the times written last: a memory, for speed alone
    "engine/telemetry.py": {"_HANDLING", "_HERE"},  # what is open in this task of the event loop
    "interfaces/telemetry/setup.py": {"_made"},  # OpenTelemetry's own providers are those of the process
    "storage/signals/wakeup.py": {"_FOR_OTHERS"},  # what is open in this task of the event loop
}


def state_of(path: Path) -> set[str]:
    """Names of a module that hold something which changes: empty containers, and variables of a context."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        kind = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
        text = ast.unparse(node.value)
        empty = isinstance(node.value, ast.Dict | ast.List) and "Mapping" not in kind and text in ("{}", "[]")
        called = text.removeprefix("weakref.").removeprefix("collections.").partition("(")[0]
        if empty or called in ("ContextVar", "WeakKeyDictionary", "WeakSet", "set", "dict", "list", "defaultdict"):
            found.add(ast.unparse(target))
    return found


def test_state_of_modules_is_listed() -> None:
    found = {name: state_of(path) for name, path in SOURCES.items()}
    assert {name: names for name, names in found.items() if names} == KNOWN


def test_no_function_assigns_a_name_of_its_module() -> None:
    """Neither `global`, by which a module would have state that no list of its names shows."""
    with_global = [
        path.name
        for path in SOURCES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Global)
    ]
    assert with_global == []
