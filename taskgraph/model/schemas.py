"""The JSON schemas of every document and message, and validators for them.

`jsonschema-rs` says whether a value obeys: some microseconds for a task. `jsonschema`, a hundred times slower, finds
what is wrong with a value that does not. The dialect is JSON Schema 2020-12; a final `$` of a pattern means the end of
the text (Python's own also matches before a last line break), `date-time` is asserted, `uniqueItems` takes linear time.
"""

import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model.errors import IntegrityError, NotFound

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


_IN_A_TAB: Final = sys.platform == "emscripten"
"""In a browser, for which `jsonschema-rs` is not built."""

_ID: Final = "urn:taskgraph:schema:"
_DATE_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:)(\d{2})(\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
# What nearly all of them look like: seen to be right without taking it apart.
_PLAIN_DATE_TIME = re.compile(
    r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
    r"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


def parse_date_time(text: str) -> datetime:
    """An RFC 3339 date-time in UTC, to the microsecond; a leap second is the one after it. Raises ValueError."""
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"“{text[:40]}” is no RFC 3339 date-time")
    date, minutes, seconds, fraction, offset = match.groups()
    leap = seconds == "60"
    fraction = "" if leap or fraction is None else fraction[:7]
    moment = datetime.fromisoformat(f"{date}T{minutes}{'59' if leap else seconds}{fraction}{offset.upper()}")
    try:
        return moment.astimezone(UTC) + timedelta(seconds=1 if leap else 0)
    except OverflowError as error:
        raise ValueError(f"“{text[:40]}” is outside the years 1 to 9999") from error


def is_date_time(text: object) -> bool:
    """Whether text is an RFC 3339 date-time; True for anything that is no text, which `type` deals with."""
    if not isinstance(text, str) or _PLAIN_DATE_TIME.fullmatch(text) is not None:
        return True
    try:
        parse_date_time(text)
    except ValueError:
        return False
    return True


@functools.cache
def folder() -> Path:
    """The folder with the schemas: inside the package once installed, beside it in a source tree."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "schemas", package.parent / "schemas"):
        if place.is_dir():
            return place
    raise IntegrityError("The JSON schemas are missing from this installation of taskgraph.")


@functools.cache
def names() -> tuple[str, ...]:
    """Names of all schemas, sorted, without `.json`."""
    return tuple(sorted(file.name[:-5] for file in folder().iterdir() if file.name.endswith(".json")))


@functools.cache
def schema(name: str) -> Mapping[str, Any]:
    """The schema of this name, such as `task-graph`; shared, not to be changed. Raises NotFound."""
    if name not in names():
        raise NotFound(f"There is no schema “{name}”.", names())
    loaded: dict[str, Any] = json.loads((folder() / f"{name}.json").read_text("utf-8"))
    return loaded


@functools.cache
def members(name: str, definition: str = "") -> tuple[str, ...]:
    found = schema(name)["$defs"][definition] if definition else schema(name)
    return tuple(found["properties"])


@functools.cache
def _dialect() -> Any:
    # Imported here: the library takes a while, and a process that meets no wrong document never needs it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    @functools.cache
    def compiled(pattern: str) -> "re.Pattern[str]":
        return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)

    def pattern(_: Any, value: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and compiled(value).search(instance) is None:
            yield ValidationError(f"{instance!r} does not match {value!r}")

    def unique_items(_: Any, value: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
        if value and isinstance(instance, list):
            seen = {json.dumps(item, sort_keys=True) for item in instance}
            if len(seen) != len(instance):
                yield ValidationError("the array has an item twice")

    extended: Any = extend  # the stubs leave it untyped
    return extended(Draft202012Validator, {"pattern": pattern, "uniqueItems": unique_items})


@functools.cache
def _registry() -> Any:
    """What finds a schema by its $id: each is read when another refers to it."""
    from referencing import Registry, Resource

    def retrieve(uri: str) -> Any:
        return Resource.from_contents(schema(uri.removeprefix(_ID)))

    registry: Any = Registry  # the stubs know none of its fields
    return registry(retrieve=retrieve)


class Validator:
    """A schema, compiled when it is first needed; it may refer to the schemas of `names()` by their $id."""

    def __init__(self, contents: Mapping[str, Any]) -> None:
        self._contents = dict(contents)

    @functools.cached_property
    def _fast(self) -> Any:
        from jsonschema_rs import Draft202012Validator  # 15 megabytes, only where documents are read

        def retrieve(uri: str) -> dict[str, Any]:
            return dict(schema(uri.removeprefix(_ID)))

        formats = {"date-time": is_date_time}
        return Draft202012Validator(self._contents, formats=formats, validate_formats=True, retriever=retrieve)

    @functools.cached_property
    def _thorough(self) -> Any:
        from jsonschema import FormatChecker

        checker = FormatChecker(formats=())
        checker.checks("date-time")(is_date_time)
        return _dialect()(self._contents, registry=_registry(), format_checker=checker)

    def is_valid(self, instance: Any) -> bool:
        if _IN_A_TAB:
            return next(self.findings(instance), None) is None
        try:
            return bool(self._fast.is_valid(instance))
        except ValueError:  # half a surrogate pair, which is no text to it
            return next(self.findings(instance), None) is None

    def obeys(self, instance: Any) -> bool:
        """Whether a value obeys, by the fast library alone: False also where that cannot say."""
        try:
            return not _IN_A_TAB and bool(self._fast.is_valid(instance))
        except ValueError:
            return False

    def iter_errors(self, instance: Any) -> "Iterator[ValidationError]":
        """Every finding, lazily; none at once for a value that obeys."""
        return iter(()) if self.is_valid(instance) else self.findings(instance)

    def findings(self, instance: Any) -> "Iterator[ValidationError]":
        """Every finding of the thorough library, whatever the fast one says."""
        found: Iterator[ValidationError] = self._thorough.iter_errors(instance)
        return found


@functools.cache
def validator(name: str, part: str = "") -> Validator:
    """The validator of a schema, or of a part of it such as `#/$defs/node`. Raises NotFound."""
    return Validator({"$ref": schema(name)["$id"] + part} if part else schema(name))


@functools.cache
def members_validator(name: str, part: str) -> Validator:
    """The validator of an object whose members all obey a part of a schema."""
    return Validator({"additionalProperties": {"$ref": schema(name)["$id"] + part}})


@functools.cache
def envelope(name: str, *members: str) -> Validator:
    """The validator of a schema that looks at these members no closer than that they are objects."""
    whole = schema(name)
    properties = dict(whole["properties"])
    for key in members:
        least = {"minProperties": properties[key]["minProperties"]} if "minProperties" in properties[key] else {}
        properties[key] = {"type": "object", **least}
    # The name goes as well, so that the local references of the rest are looked up in this reduced copy.
    return Validator({**{key: value for key, value in whole.items() if key != "$id"}, "properties": properties})
