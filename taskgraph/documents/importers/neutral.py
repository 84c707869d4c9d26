"""The neutral form: `{"source", "license", "metadata", "tasks": {label: {"requires", "runtimeSeconds", "command"}}}`.

`runtimeSeconds` becomes a `sleep` of so many seconds, null a `noop`; `command` is kept as `payload.commandLine`.
"""

from typing import Any, Final

from taskgraph.documents.importers.shaping import Imported, Reader, stand_in
from taskgraph.model.json_strict import Path, show

_KEYS: Final = frozenset({"source", "license", "metadata", "tasks"})
_TASK_KEYS: Final = frozenset({"requires", "runtimeSeconds", "command"})


def convert(obj: Any, *, source: str = "document") -> Imported:
    reader = Reader(source)
    whole = reader.mapping(obj, (), "The document")
    if whole and "tasks" not in whole:
        reader.problem((), "missing", "The document lacks the key `tasks`.", "Check that it is of the neutral form.")
    for key in whole.keys() - _KEYS:
        reader.note(f"The key {show(key)} of the document was left out.")
    tasks: dict[str, Any] = {}
    places: dict[str, Path] = {}
    left_out = 0
    for label, foreign in reader.mapping(whole.get("tasks", {}), ("tasks",), "`tasks`").items():
        place: Path = ("tasks", label)
        node = reader.mapping(foreign, place, f"The task {show(label)}")
        left_out += len(node.keys() - _TASK_KEYS)
        seconds = reader.seconds(node.get("runtimeSeconds"), (*place, "runtimeSeconds"), "`runtimeSeconds`")
        command = reader.optional_text(node.get("command"), (*place, "command"), "`command`")
        requires = reader.texts(node.get("requires", []), (*place, "requires"), "`requires`")
        tasks[label] = {"requires": requires, "task": stand_in(seconds, command)}
        places[label] = place
    reader.note_count(left_out, "One unknown key of a task was left out.", "{} unknown keys of tasks were left out.")
    metadata = whole.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return reader.document(
        tasks,
        places,
        metadata=reader.metadata(name=name, source=whole.get("source")),
        tags=reader.tags({"license": whole.get("license")}),
        inner=lambda path: path if path[:1] == ("requires",) else (),
    )
