"""What a task hands on, and how another takes it: outputs and files, and the objects that stand for them.

`{"$result": "label"}` in a payload becomes the output of that task right before the run, and `{"$file": "label",
"path": "dist/app"}` the path of a copy of that file; on rows both name the taskId.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.placeholders import as_text, objects_with, replaced
from taskgraph.documents.schema_check import FILE, RESULT, is_label
from taskgraph.model import limits
from taskgraph.model.columns import NO_OUTPUT, OUTPUT
from taskgraph.model.errors import InvalidInput
from taskgraph.model.ids import is_task_id
from taskgraph.model.json_pointer import NoSuchPlace, look_up, steps, what_is
from taskgraph.model.json_strict import Path, compact_json, faults, show, too_deep_at
from taskgraph.model.paths import wrong_path
from taskgraph.model.states import TaskState
from taskgraph.model.utf16 import utf16_units

_OUTPUT_DEPTH_MAX: Final = limits.DOCUMENT_DEPTH_MAX - 8  # a message puts some objects around it
_KEYS: Final = frozenset({RESULT, "path", "default"})
_STORED_KEYS: Final = frozenset({RESULT, "label", "path", "default"})
_FILE_KEYS: Final = frozenset({FILE, "path"})
_STORED_FILE_KEYS: Final = frozenset({FILE, "label", "path"})
_UTF8_BYTES_MAX: Final = 8 * limits.OUTPUT_CHARS_MAX  # of what may, without its blanks and escapes, be short enough
_RESULT_KEY, _FILE_KEY = f'"{RESULT}"', f'"{FILE}"'
_WITHOUT: Final = (TaskState.SKIPPED, TaskState.FAILED, TaskState.EXCEPTION)


def handed_on(result: bytes) -> dict[str, Any]:
    """What a result, as JSON text in UTF-8, adds to the resolution of its task: the output, or why it holds none.

    A longer one is read from its file by tasks that take it.
    """
    too_long = {NO_OUTPUT: f"the result is longer than {limits.OUTPUT_CHARS_MAX:,} UTF-16 units (OUTPUT_CHARS_MAX)"}
    if len(result) > _UTF8_BYTES_MAX:
        return too_long
    found = as_output(result)
    if OUTPUT in found and utf16_units(compact_json(found[OUTPUT])) > limits.OUTPUT_CHARS_MAX:
        return too_long
    return found


def as_output(result: bytes) -> dict[str, Any]:
    """A result of any length: the output, or why it is none."""
    try:
        text = result.decode("utf-8")
        if too_deep_at(text, _OUTPUT_DEPTH_MAX) is not None:
            return {NO_OUTPUT: f"the result is nested more than {_OUTPUT_DEPTH_MAX} deep"}
        value = json.loads(text)
    except ValueError:
        return {NO_OUTPUT: "the file of the result is damaged"}
    if next(faults(value), None) is not None:
        return {NO_OUTPUT: "the result holds a number beyond 64 bits, or half a character"}
    return {OUTPUT: value}


def taking_key(here: Mapping[str, Any]) -> str:
    """`$result` or `$file`, whichever an object has; "" for neither."""
    return RESULT if RESULT in here else FILE if FILE in here else ""


def wrong_form(here: Mapping[str, Any]) -> str:
    """What is wrong with a `$result` or `$file` object of a document, for a sentence; "" if it is right."""
    if RESULT not in here:
        return _wrong_file(here)
    if not _KEYS.issuperset(here):
        return f"it also has {show(next(key for key in here if key not in _KEYS))}"
    if not is_label(here[RESULT]):
        return f"the label is {show(here[RESULT])}"
    path = here.get("path", "")
    try:
        if not isinstance(path, str):
            raise ValueError
        steps(path)
    except ValueError:
        return f"`path` is {show(path)}, which is no JSON pointer (RFC 6901)"
    return ""


def _wrong_file(here: Mapping[str, Any]) -> str:
    if not _FILE_KEYS.issuperset(here):
        return f"it also has {show(next(key for key in here if key not in _FILE_KEYS))}"
    if not is_label(here[FILE]):
        return f"the label is {show(here[FILE])}"
    if why := wrong_path(here.get("path")):
        return f"`path` {why}"
    return ""


def stored(here: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """The object as it stands on a row: with the id of the task, and its label for people."""
    key = taking_key(here)
    rest = {name: value for name, value in here.items() if name != key}
    return {key: task_id, "label": here[key], **rest}


Resolved = tuple[str, Mapping[str, Any] | None]  # state of a task, and its resolution if it has one


class NoResult(InvalidInput):
    """A task cannot be run, however often: what it was to be given is not there."""


def may_take(definition: str) -> bool:
    """Whether a definition, as the text that a row holds, may have a `$result` or `$file` in it."""
    return _RESULT_KEY in definition or _FILE_KEY in definition


def _is_stored(here: Mapping[str, Any]) -> bool:
    task_id = here[taking_key(here)]
    if FILE in here:
        return is_task_id(str(task_id)) and here.keys() == _STORED_FILE_KEYS and not wrong_path(here["path"])
    return (
        isinstance(task_id, str)
        and is_task_id(task_id)
        and "label" in here
        and isinstance(here.get("path", ""), str)
        and _STORED_KEYS.issuperset(here)
    )


def taken_from(definition: Mapping[str, Any]) -> list[str]:
    """Ids of the tasks whose outputs or files a definition takes."""
    payload = definition.get("payload")
    found = [here[key] for key in (RESULT, FILE) for here in objects_with(key, payload) if _is_stored(here)]
    return list(dict.fromkeys(found))


def files_taken(definition: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The files that a definition takes: taskId, label and path of each."""
    found = (here for here in objects_with(FILE, definition.get("payload")) if _is_stored(here))
    return list(dict.fromkeys((here[FILE], here["label"], here["path"]) for here in found))


def put_in_files(definition: Mapping[str, Any], texts: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """A definition with a text for each file that it takes. texts: by taskId and path."""

    def found(here: dict[str, Any], path: Path, depth: int, text: bool) -> Any:
        return texts[here[FILE], here["path"]] if _is_stored(here) else here

    made: dict[str, Any] = replaced(dict(definition), FILE, found, payload_alone=True)
    return made


def put_in(definition: Mapping[str, Any], resolved: Mapping[str, Resolved]) -> dict[str, Any]:
    """A definition with the outputs that it takes; what it holds is shared. Raises NoResult, with what there is."""
    chars = 0

    def found(here: dict[str, Any], path: Path, depth: int, text: bool) -> Any:
        nonlocal chars
        if not _is_stored(here):
            return here  # put there by an older version, to which it meant nothing
        value = _value(here, resolved.get(here[RESULT], ("", None)))
        chars += len(compact_json(value))
        if chars > limits.DEFINITION_CHARS_MAX:
            most = f"{limits.DEFINITION_CHARS_MAX:,} characters"
            raise NoResult(f"with the results that it takes the payload has more than {most}")
        return as_text(value) if text else value

    made: dict[str, Any] = replaced(dict(definition), RESULT, found, payload_alone=True)
    return made


def _value(here: Mapping[str, Any], resolved: Resolved) -> Any:
    state, resolution = resolved
    label, path = show(here["label"]), here.get("path", "")
    at = f" at {show(path)}" if path else ""
    if state in _WITHOUT:
        return here.get("default")
    if state != TaskState.COMPLETED or resolution is None:
        raise NoResult(f"the result of {label}{at} is needed, and that task is {state or 'not there'}")
    if OUTPUT not in resolution:
        if "default" in here:
            return here["default"]
        why = resolution.get(NO_OUTPUT)
        what = f"has none to hand on: {why}" if isinstance(why, str) else "left none"
        raise NoResult(f"the result of {label}{at} is needed, and its run {what}")
    try:
        return look_up(resolution[OUTPUT], path)
    except NoSuchPlace as error:
        if "default" in here:
            return here["default"]
        where = f" at {show(error.reached)}" if error.reached else ""
        raise NoResult(f"the result of {label} has nothing{at}: there is {what_is(error.there)}{where}") from error
    except ValueError as error:  # only a row that was written by hand
        raise NoResult(f"the result of {label} is asked for at {show(path)}, which is no JSON pointer") from error
