"""Parameters of a graph: what a document declares, which values it gets, and the `$param` objects replaced by them.

Values are put in before anything is checked further, hashed or written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from taskgraph.documents.placeholders import as_text, objects_with, replaced
from taskgraph.documents.problems import Report
from taskgraph.documents.schema_check import PARAM, TYPE_NAMES, is_param_name
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.json_pointer import NoSuchPlace, look_up, steps, what_is
from taskgraph.model.json_strict import Path, canonical_json, faults, parse, show, too_deep_at
from taskgraph.model.utf16 import utf16_units

_CLASSES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}
_KEYS: Final = frozenset({PARAM, "path"})


class Words(str):
    """A value as a person typed it: text, and read as JSON where the parameter is declared to be no text."""

    __slots__ = ()


def typed(options: Iterable[str], said: str = "--param ") -> dict[str, Any]:
    """Values from `goal=all` (text, or JSON where the parameter is no text) and `sizes:=[1]`. Raises InvalidInput.

    said: what stands before each where it was given.
    """
    given: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not is_param_name(name):
            form = "write NAME=TEXT or NAME:=JSON, such as goal=all or sizes:=[1,2]"
            raise InvalidInput(f"{said}{show(option)}: {form}")
        if name in given:
            raise InvalidInput(f"{said}{name} is given twice")
        given[name] = _json(text, f"{said}{name}") if is_json else Words(text)
    return given


def _json(text: str, name: str) -> Any:
    if too_deep_at(text, limits.DOCUMENT_DEPTH_MAX) is not None:
        raise InvalidInput(f"{name}: the value is nested more than {limits.DOCUMENT_DEPTH_MAX} deep")
    try:
        parsed = parse(text)
    except ValueError as error:
        raise InvalidInput(f"{name}: {show(text)} is not JSON: {error}") from error
    if parsed.suspect:
        for fault in faults(parsed.value):
            raise InvalidInput(f"{name}: {fault.message} {fault.remedy}")
    return parsed.value


_ESCAPES: Final = ("\\u00", "\\x", "\\U00")  # of JSON, YAML and TOML


def mentions(text: str) -> bool:
    """Whether a text may hold a `$param` object. True for one with an escape that could spell the word."""
    return PARAM in text or any(escape in text for escape in _ESCAPES)


@dataclass(frozen=True, slots=True)
class Values:
    """known: value by name. broken: names whose value is missing or wrong, which has been reported."""

    known: Mapping[str, Any]
    broken: frozenset[str] = frozenset()


def bind(
    declared: Any,
    given: Mapping[str, Any],
    inherited: Mapping[str, Any],
    used: frozenset[str],
    kind: Literal["graph", "extension"],
    report: Report,
    *,
    check: bool = False,
) -> Values:
    """Find a value for every parameter, and report whatever is wrong with them, all at once.

    declared: `params` of the document, of any form. given: JSON values or Words. inherited: of the graph that an
    extension is for. used: names that `$param` objects mention; an extension may use some that it does not declare.
    check: a missing value is null, and no mistake.
    """
    own = {name: each for name, each in declared.items() if is_param_name(name)} if isinstance(declared, dict) else {}
    if len(own) > limits.PARAMS_MAX:
        message = f"The graph has {len(own):,} parameters; {limits.PARAMS_MAX} are allowed."
        report.add(("params",), "too-many", message, "Put what belongs together into one of type object.")
        return Values({}, frozenset(own))
    values: dict[str, Any] = dict(inherited)
    broken: set[str] = set()
    for name, value in given.items():
        if name in own or name in inherited or (kind == "extension" and name in used and is_param_name(name)):
            values[name] = str(value) if isinstance(value, Words) else value
            continue
        near = report.near(name, own.keys() | inherited.keys())
        names = ", ".join(map(show, own)) if own else "none"
        message = f"{show(name)} is given, and is not a parameter of this graph.{near}"
        report.add(("params",), "unknown-param", message, f"Correct the name, or declare it. Declared: {names}.")
    for name, one in own.items():
        if not isinstance(one, dict) or not _is_json(one):
            broken.add(name)
            continue
        if "default" in one and not _suits(one["default"], one, name, "default", report):
            broken.add(name)
        if name in given:
            value = _spelt(given[name], one, report, name)
            if value is _NOTHING or not _suits(value, one, name, "", report):
                broken.add(name)
            values[name] = value
        elif name in inherited:
            if not _suits(values[name], one, name, "", report):
                broken.add(name)
        elif "default" in one:
            values[name] = one["default"]
        elif check:
            values[name] = None
        else:
            broken.add(name)
            message = f"The parameter {show(name)} has no default, and no value is given."
            remedy = f"Give it: --param {name}=VALUE; or add a `default`."
            report.add(("params", name), "missing-param", message, remedy)
    for name in values:
        if name not in broken and any(True for _ in objects_with(PARAM, values[name])):
            place: Path = ("params", name) if name in given else ("params", name, "default")
            message = f"The value of the parameter {show(name)} holds a `$param` object."
            report.add(place, "bad-param", message, "Values are put in as they are; write out what it stands for.")
            broken.add(name)
    units = utf16_units(canonical_json({name: value for name, value in values.items() if name not in broken}))
    if units > limits.PARAMS_CHARS_MAX:
        message = f"The values of the parameters have {units:,} UTF-16 units as JSON; {limits.PARAMS_CHARS_MAX:,} fit."
        report.add(("params",), "too-large", message, "Put the data into a file or blob, and give its address.")
        broken.update(values)
    return Values(values, frozenset(broken))


_NOTHING: Final = object()


def _is_json(value: Any) -> bool:
    try:
        canonical_json(value)
    except (TypeError, ValueError):
        return False
    return True


def _spelt(value: Any, declared: Mapping[str, Any], report: Report, name: str) -> Any:
    """A given value; what was typed as text for a parameter that is to be something else is read as JSON."""
    if not isinstance(value, Words):
        return value
    text = str(value)
    if declared.get("type", "string") == "string":
        return text
    try:
        return _json(text, name)
    except InvalidInput:
        expected = TYPE_NAMES.get(str(declared["type"]), "JSON")
        message = f"The parameter {show(name)} must be {expected}, and {show(text)} is not."
        report.add(("params", name), "wrong-type", message, f"Give {expected}, written as JSON.")
        return _NOTHING


def _suits(value: Any, declared: Mapping[str, Any], name: str, key: str, report: Report) -> bool:
    """Whether a value is what its parameter is declared to be; reported if not. key: `default`, "" for a given one."""
    kind = declared.get("type")
    place: Path = ("params", name, key) if key else ("params", name)
    what = f"The default of the parameter {show(name)}" if key else f"The parameter {show(name)}"
    if isinstance(kind, str) and kind in _CLASSES and not _is_a(value, kind):
        message = f"{what} must be {TYPE_NAMES[kind]}, and is {what_is(value)}."
        report.add(place, "wrong-type", message, f"Give {TYPE_NAMES[kind]}.")
        return False
    allowed = declared.get("enum")
    if isinstance(allowed, list) and canonical_json(value) not in map(canonical_json, allowed):
        shown = ", ".join(map(show, allowed[:10])) + (", …" if len(allowed) > 10 else "")
        near = report.near(value, [each for each in allowed if isinstance(each, str)]) if isinstance(value, str) else ""
        message = f"{what} is {what_is(value)}, and must be one of {shown}.{near}"
        report.add(place, "not-allowed", message, "Give one of them.")
        return False
    return True


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _CLASSES[kind])


def names_in(definitions: Iterable[Any]) -> frozenset[str]:
    """The names that `$param` objects mention; "" among them for an object of a wrong form."""
    return frozenset(
        here[PARAM] if isinstance(here[PARAM], str) else ""
        for each in definitions
        for here in objects_with(PARAM, each)
    )


class Replacing:
    """Puts the values into definitions; check: only looks. broken: something could not be replaced."""

    def __init__(self, values: Values, report: Report, *, check: bool = False) -> None:
        self._values = values
        self._report = report
        self._check = check
        self._sizes: dict[str, int] = {}  # characters of each value as JSON
        self._chars = 0
        self.broken = False

    def definition(self, label: str, task: dict[str, Any]) -> dict[str, Any]:
        """The definition with its values; the same object if it holds no `$param`. Checking gives it as it is."""
        path: Path = ("tasks", label, "task")
        if PARAM in task:
            message = "The definition itself is a `$param` object."
            return self._kept(task, path, "bad-param", message, "Put it inside the definition.")
        self._chars = 0
        made: dict[str, Any] = replaced(task, PARAM, self._found, path=path)
        return made

    def _found(self, here: dict[str, Any], path: Path, depth: int, text: bool) -> Any:
        """What a `$param` object stands for; the object itself where that is not to be said."""
        name, place = here[PARAM], here.get("path", "")
        if not isinstance(name, str) or not isinstance(place, str) or not _KEYS.issuperset(here):
            odd = next((key for key in here if key not in _KEYS), None)
            why = f"it also has {show(odd)}" if odd is not None else "name and path are strings"
            message = f'A `$param` object is not of the form {{"$param": "name"}} ({why}).'
            remedy = "Only `path`, a JSON pointer into the value, may stand beside the name."
            return self._kept(here, path, "bad-param", message, remedy)
        known = self._values.known
        if name in self._values.broken:
            self.broken = True
            return here
        if name not in known:
            near = self._report.near(name, [*known, *self._values.broken], "unknown-param")
            message = f"{show(name)} is not a parameter of this graph.{near}"
            return self._kept(
                here, (*path, PARAM), "unknown-param", message, "Correct the name, or declare it under `params`."
            )
        try:
            value = here if self._check and steps(place) is not None else look_up(known[name], place)
        except NoSuchPlace as error:
            at = f" at {show(error.reached)}" if error.reached else ""
            message = f"The parameter {show(name)} has nothing at {show(place)}: there is {what_is(error.there)}{at}."
            return self._kept(here, (*path, "path"), "no-such-path", message, "Correct the path, or the value.")
        except ValueError:
            message = f"`path` is {show(place)}, which is no JSON pointer (RFC 6901)."
            return self._kept(
                here, (*path, "path"), "bad-param", message, 'Write it like "/key/0"; "" is the whole value.'
            )
        if self._check:
            return here
        if name not in self._sizes:
            self._sizes[name] = len(canonical_json(known[name]))
        self._chars += self._sizes[name]
        if self._chars > limits.DEFINITION_CHARS_MAX:
            message = f"With its parameters the definition has more than {limits.DEFINITION_CHARS_MAX:,} UTF-16 units."
            return self._kept(here, path[:3], "too-large", message, "Use fewer of them, or smaller values.")
        if isinstance(value, dict | list) and depth + _depth_of(value) > limits.DOCUMENT_DEPTH_MAX:
            message = f"With the parameter {show(name)} values are nested more than {limits.DOCUMENT_DEPTH_MAX} deep."
            return self._kept(here, path, "depth", message, "Flatten the value, or pass it as a string.")
        return as_text(value) if text else value

    def _kept(self, here: dict[str, Any], path: Path, code: str, message: str, remedy: str) -> dict[str, Any]:
        """Report why an object cannot be replaced, and give it back."""
        self.broken = True
        self._report.add(path, code, message, remedy)
        return here


def _depth_of(value: Any) -> int:
    """Levels of arrays and objects; the depth of what was parsed is bounded."""
    deepest = 0
    stack = [(value, 1)]
    while stack:
        here, depth = stack.pop()
        deepest = max(deepest, depth)
        members = here.values() if isinstance(here, dict) else here
        stack.extend((member, depth + 1) for member in members if isinstance(member, dict | list))
    return deepest
