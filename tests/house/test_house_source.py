"""Rules for the source that no linter knows. Who imports whom inside is for import-linter (scripts/check)."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

import taskgraph

ROOT: Final = Path(__file__).resolve().parents[2]
MODULES: Final = {
    ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in (ROOT / "taskgraph", ROOT / "functions_host" / "taskgraph_functions_host")
    for path in sorted(folder.rglob("*.py"))
}

# Libraries, and the rooms that may use them: a name stands for the module, and all that begin with it. What stands
# under another room's contract here is not repeated there.
LIBRARIES: Final = MappingProxyType(
    {
        "azure": (
            "taskgraph.storage.azure",
            "taskgraph.worker.executors.key_vault",
            "taskgraph.interfaces.telemetry.setup",
        ),  # there, the distribution of Azure Monitor
        "opentelemetry": ("taskgraph.interfaces.telemetry.otel", "taskgraph.interfaces.telemetry.setup"),
        "aiohttp": (
            "taskgraph.storage.azure",
            "taskgraph.engine.outlets",  # and webhooks
            "taskgraph.interfaces.http.entra",  # and keys of Entra ID
            "taskgraph.worker.executors.http",  # and tasks that are requests
            "taskgraph.worker.executors.cluster",  # and what its client for Kubernetes leaves to it
            "taskgraph.storage.http",
        ),
        "jwt": ("taskgraph.interfaces.http.entra",),
        "azure_functions_runtime": ("taskgraph_functions_host.worker_main",),  # in a process of its own
        "cronsim": ("taskgraph_functions_host.schedule", "taskgraph.documents.recurrence"),
        "sqlite3": ("taskgraph.storage.sqlite",),
        "mohawk": ("taskgraph.interfaces.taskcluster",),
        "starlette": (
            "taskgraph.interfaces.http",
            "taskgraph.interfaces.taskcluster",
            "taskgraph.interfaces.web",
            "taskgraph.interfaces.functions",
            "taskgraph_functions_host.http_listener",
        ),
        "sse_starlette": ("taskgraph.interfaces.http",),
        "uvicorn": ("taskgraph.interfaces.http",),
        "typer": ("taskgraph.interfaces.cli",),
        "click": ("taskgraph.interfaces.cli",),
        "rich": ("taskgraph.interfaces.cli",),
        "random": ("taskgraph.model.clock", "taskgraph.rehearsal"),  # there from a seed alone
        "secrets": ("taskgraph.model.clock",),
        "uuid": ("taskgraph.interfaces.exports.openlineage",),  # of names: nothing is drawn
        "time": (
            "taskgraph.model.clock",
            "taskgraph.worker.executors.orphans",
            "taskgraph.worker.executors.starter",
        ),  # scripts in processes of their own
        "requests": (),
    }
)
ADAPTERS: Final = ("taskgraph.storage.azure", "taskgraph.storage.sqlite", "taskgraph.storage.memory")
NAMERS_OF_ADAPTERS: Final = (
    "taskgraph.interfaces.app",
    "taskgraph.interfaces.web.tab",
    "taskgraph.rehearsal",
    "taskgraph.testing",
    *ADAPTERS,
)

DOORS: Final = tuple(f"taskgraph.interfaces.{each}" for each in ("cli", "client", "http", "taskcluster", "web"))
PAST_THE_OPERATIONS: Final = ("app.handlers", "app.tables", "app.queues")
READS_OF_DOORS: Final = {
    ("cli.common", "app.tables"),  # one row, to see that the store answers
    ("cli.serve", "app.handlers"),  # one look, to see that the store answers
    ("http.feeds", "self._app.handlers"),  # what is called after commits of this process
    ("http.ports", "asked.app.tables"),  # each route is one call of a port, for a store behind a server
    ("http.ports", "app.queues"),
}

# Ways to read a clock or draw chance through modules that are otherwise welcome.
READS_OF_CHANCE: Final = frozenset(
    {
        "datetime.now",
        "datetime.utcnow",
        "datetime.today",
        "date.today",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
        "os.urandom",
        "os.getrandom",
    }
)


def within(module: str, rooms: tuple[str, ...]) -> bool:
    """Whether a module is one of the rooms, lies in one, or stands beside one under its name (`azure_tables`)."""
    return module.startswith(rooms)


def imports(module: str, source: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports, wherever it does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def foreign_imports(module: str, source: str) -> list[str]:
    """What a module imports, and may not."""
    found = []
    for line, name in imports(module, source):
        rooms = LIBRARIES.get(name.partition(".")[0])
        if rooms is not None and not within(module, rooms):
            found.append(f"{module}:{line}: {name}")
        if within(name, ADAPTERS) and not within(module, NAMERS_OF_ADAPTERS):
            found.append(f"{module}:{line}: {name}, which is the composition root's to name")
    return found


def reads_of_chance(module: str, source: str) -> list[str]:
    """Where a module asks the machine for the time or for a random number, instead of its Clock."""
    return [
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in READS_OF_CHANCE
        and module != "taskgraph.model.clock"
    ]


def test_the_command_line_and_the_client_go_through_the_operations() -> None:
    """Neither touches rows, queues or handlers itself: what is asked of a store has one door for all of them."""
    found = {
        (module.removeprefix("taskgraph.interfaces."), ast.unparse(node))
        for module, path in MODULES.items()
        if within(module, DOORS)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith(PAST_THE_OPERATIONS)
    }
    assert found == READS_OF_DOORS


def test_answers_as_json_are_made_where_all_of_them_are() -> None:
    made = [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        if within(module, ("taskgraph.interfaces.cli",))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("document", "json_line")
        and any(isinstance(each, ast.Dict) for each in node.args)
    ]
    assert made == [], "interfaces.views has a function for each"


def test_there_is_something_to_look_at() -> None:
    assert {
        "taskgraph",
        "taskgraph.model.clock",
        "taskgraph.storage.tables",
        "taskgraph.worker.executors",
    } <= MODULES.keys()


@pytest.mark.parametrize("module", MODULES)
def test_libraries_stay_in_their_rooms(module: str) -> None:
    assert foreign_imports(module, MODULES[module].read_text("utf-8")) == []


@pytest.mark.parametrize("module", MODULES)
def test_time_and_chance_come_from_the_clock(module: str) -> None:
    assert reads_of_chance(module, MODULES[module].read_text("utf-8")) == []


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_for(module: str) -> None:
    text = ast.get_docstring(ast.parse(MODULES[module].read_text("utf-8")))
    assert text is not None
    assert len(text.split()) >= 5, f"{module}: {text!r} says little"


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "def f():\n    import random",
        "import uuid",
        "import azure.data.tables.aio",
        "from azure.core import exceptions",
        "from taskgraph.storage.azure import account as azure",
        "from taskgraph.storage.azure.tables import AzureTables",
        "import taskgraph.storage.sqlite",
        "import rich.table",
    ],
)
def test_a_foreign_import_is_seen(source: str) -> None:
    assert len(foreign_imports("taskgraph.engine.commit", source)) == 1


def test_an_import_at_home_is_none() -> None:
    assert foreign_imports("taskgraph.model.clock", "import time") == []
    assert foreign_imports("taskgraph.storage.azure.tables", "import azure.data.tables") == []
    assert foreign_imports("taskgraph.interfaces.app", "from taskgraph.storage.sqlite import open_store") == []


@pytest.mark.parametrize(
    "source",
    [
        "x = datetime.now(UTC)",
        "import datetime\nx = datetime.datetime.now()",
        "f(clock=datetime.now)",
        "os.urandom(16)",
    ],
)
def test_a_read_of_chance_is_seen(source: str) -> None:
    assert len(reads_of_chance("taskgraph.engine.commit", source)) == 1
    assert reads_of_chance("taskgraph.engine.commit", "now = clock.now()") == []


def test_public_names_are_documented() -> None:
    pages = [path.read_text("utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    silent = []
    for name in getattr(taskgraph, "__all__", ()):
        value = getattr(taskgraph, name)
        if (inspect.isclass(value) or inspect.isroutine(value)) and not inspect.getdoc(value):
            silent.append(f"taskgraph.{name} has no docstring")
        if name != "__version__" and not any(name in page for page in pages):
            silent.append(f"no page names taskgraph.{name}")
    assert silent == []


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("__main__")])
def test_all_names_what_exists(module: str) -> None:
    loaded = importlib.import_module(module)
    missing = [name for name in getattr(loaded, "__all__", ()) if not hasattr(loaded, name)]
    assert missing == []
