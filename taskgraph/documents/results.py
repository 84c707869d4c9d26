"""What a task hands on, and how another takes it: outputs, and the `$result` objects that stand for them.

`{"$result": "label"}` in a payload becomes the output of that task right before the run; on rows it names the taskId.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.placeholders import as_text, objects_with, replaced
from taskgraph.documents.schema_check import RESULT, is_label
from taskgraph.model import limits
from taskgraph.model.columns import NO_OUTPUT, OUTPUT
from taskgraph.model.errors import InvalidInput
from taskgraph.model.ids import is_task_id
from taskgraph.model.json_pointer import NoSuchPlace, look_up, steps, what_is
from taskgraph.model.json_strict import Path, compact_json, faults, show, too_deep_at
from taskgraph.model.states import TaskState
from taskgraph.model.utf16 import utf16_units

_OUTPUT_DEPTH_MAX: Final = limits.DOCUMENT_DEPTH_MAX - 8  # a message puts some objects around it
_KEYS: Final = frozenset({RESULT, "path", "default"})
_STORED_KEYS: Final = frozenset({RESULT, "label", "path", "default"})
_UTF8_BYTES_MAX: Final = 8 * limits.OUTPUT_CHARS_MAX  # of what may, without its blanks and escapes, be short enough
_WITHOUT: Final = (TaskState.SKIPPED, TaskState.FAILED, TaskState.EXCEPTION)


def handed_on(result: bytes) -> dict[str, Any]:
    """What a result, as JSON text in UTF-8, adds to the resolution of its task: the output, or why it is none."""
    too_long = f"the result is longer than {limits.OUTPUT_CHARS_MAX:,} UTF-16 units (OUTPUT_CHARS_MAX)"
    if len(result) > _UTF8_BYTES_MAX:
        return {NO_OUTPUT: too_long}
    text = result.decode("utf-8")
    if too_deep_at(text, _OUTPUT_DEPTH_MAX) is not None:
        return {NO_OUTPUT: f"the result is nested more than {_OUTPUT_DEPTH_MAX} deep"}
    value = json.loads(text)
    if next(faults(value), None) is not None:
        return {NO_OUTPUT: "the result holds a number beyond 64 bits, or half a character"}
    return {NO_OUTPUT: too_long} if utf16_units(compact_json(value)) > limits.OUTPUT_CHARS_MAX else {OUTPUT: value}


def wrong_form(here: Mapping[str, Any]) -> str:
    """What is wrong with a `$result` object of a document, for a sentence; "" if it is right."""
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


def stored(here: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """The object as it stands on a row: with the id of the task, and its label for people."""
    rest = {key: value for key, value in here.items() if key != RESULT}
    return {RESULT: task_id, "label": here[RESULT], **rest}


Resolved = tuple[str, Mapping[str, Any] | None]  # state of a task, and its resolution if it has one


class NoResult(InvalidInput):
    """A task cannot be run, however often: what it was to be given is not there."""


def may_take(definition: str) -> bool:
    """Whether a definition, as the text that a row holds, may have a `$result` in it."""
    return f'"{RESULT}"' in definition


def _is_stored(here: Mapping[str, Any]) -> bool:
    task_id = here[RESULT]
    return (
        isinstance(task_id, str)
        and is_task_id(task_id)
        and "label" in here
        and isinstance(here.get("path", ""), str)
        and _STORED_KEYS.issuperset(here)
    )


def taken_from(definition: Mapping[str, Any]) -> list[str]:
    found = (here[RESULT] for here in objects_with(RESULT, definition.get("payload")) if _is_stored(here))
    return list(dict.fromkeys(found))


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
