"""A .gitlab-ci.yml as GitLab sees it before it makes jobs: files included, `!reference` and `extends` resolved."""

from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.importers.shaping import Foreign, Reader
from taskgraph.documents.problems import Report, nearest
from taskgraph.documents.yaml_text import Place, lines, parse_foreign
from taskgraph.model.json_strict import Path, show

RESERVED: Final = frozenset({
    "default", "include", "stages", "variables", "workflow", "spec", "image", "services", "before_script",
    "after_script", "cache", "types",
})  # fmt: skip
_INCLUDES_MAX: Final = 150  # as GitLab
_EXTENDS_MAX: Final = 11
_REFERENCES_MAX: Final = 10


def read(foreign: Foreign, reader: Reader) -> dict[str, Any]:
    """The keys of the file with those of what it includes, jobs resolved."""
    whole, place = _parsed(foreign.text, foreign.source)
    reader.know_lines(lambda paths: lines(place, paths))
    merged = _with_included(reader.mapping(whole, (), "The file"), foreign, reader)
    resolver = _Resolver(merged, reader)
    return {key: resolver.job(key) if isinstance(value, dict) else value for key, value in merged.items()}


def _parsed(text: str, source: str) -> tuple[Any, Place]:
    documents = parse_foreign(text, Report(source))
    return documents[-1] if documents else ({}, (1, None))  # a header with `spec` stands before the content


def _with_included(whole: dict[str, Any], foreign: Foreign, reader: Reader) -> dict[str, Any]:
    """What is included comes first, so that what includes it wins, as GitLab merges."""
    merged: dict[str, Any] = {}
    missing: list[str] = []
    left, seen = _includes(whole), set()
    texts: list[dict[str, Any]] = []
    while left:
        path = left.pop(0)
        if path in seen:
            continue
        seen.add(path)
        text = foreign.beside(path.lstrip("/")) if len(seen) <= _INCLUDES_MAX and not path.startswith(" ") else None
        inner = _parsed(text, path)[0] if text is not None else None
        if not isinstance(inner, dict):
            missing.append(path.strip())
            continue
        texts.append(inner)
        left += _includes(inner)
    for inner in [*reversed(texts), whole]:
        merged = merge(merged, inner)
    reader.note_names(missing, "Included files that are not given, and were left out")
    return merged


def _includes(whole: Mapping[str, Any]) -> list[str]:
    """Paths of local files; whatever else is included begins with a blank: it is not at hand."""
    stated = whole.get("include", [])
    found = []
    for one in stated if isinstance(stated, list) else [stated]:
        if isinstance(one, str):
            found.append(one if "://" not in one else f" {one}")
        elif isinstance(one, dict):
            local = one.get("local")
            other = next((one[key] for key in ("template", "remote", "component", "file") if key in one), "?")
            other = ", ".join(map(str, other)) if isinstance(other, list) else other
            found.append(local if isinstance(local, str) else f" {other}")
    return found


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """GitLab's merge: objects by key and in depth, whatever else is replaced."""
    made = dict(below)
    for key, value in above.items():
        old = made.get(key)
        made[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return made


class _Resolver:
    def __init__(self, whole: Mapping[str, Any], reader: Reader) -> None:
        self._whole = whole
        self._reader = reader
        self._done: dict[str, dict[str, Any]] = {}

    def job(self, name: str) -> dict[str, Any]:
        made: dict[str, Any] = self._referenced(self._extended(name, ()), (name,), 0)
        return made

    def _extended(self, name: str, way: tuple[str, ...]) -> dict[str, Any]:
        if name in self._done:
            return self._done[name]
        own = self._whole[name]
        stated = own.get("extends", [])
        made: dict[str, Any] = {}
        for other in (
            [stated] if isinstance(stated, str) else self._reader.texts(stated, (name, "extends"), "`extends`")
        ):
            place: Path = (name, "extends")
            if other in (*way, name) or len(way) >= _EXTENDS_MAX:
                message = f"{show(name)} extends {show(other)}, which comes back to it, or is too deep."
                self._reader.problem(place, "cycle", message, "Leave it out.")
            elif not isinstance(self._whole.get(other), dict):
                near = "".join(f" Did you mean {show(one)}?" for one in nearest(other, self._whole, 1))
                message = f"{show(name)} extends {show(other)}, which is not here.{near}"
                if "include" in self._whole:
                    self._reader.note_names([other], "Extended jobs that are in no file at hand")
                    made["extends"] = other
                else:
                    self._reader.problem(place, "unknown-label", message, "Correct the name, or add the job.")
            else:
                made = merge(made, self._extended(other, (*way, name)))
        made = merge(made, {key: value for key, value in own.items() if key != "extends"})
        self._done[name] = made
        return made

    def _referenced(self, value: Any, path: Path, depth: int) -> Any:
        """The value with what `!reference` names in its place; inside an array the members of an array."""
        if isinstance(value, dict):
            return {key: self._referenced(member, (*path, key), depth) for key, member in value.items()}
        if not isinstance(value, list):
            return value
        if value[:1] == ["!reference"]:
            return self._target(value[1:], path, depth)
        made: list[Any] = []
        for index, member in enumerate(value):
            inner = self._referenced(member, (*path, index), depth)
            if isinstance(member, list) and member[:1] == ["!reference"] and isinstance(inner, list):
                made += inner
            else:
                made.append(inner)
        return made

    def _target(self, keys: list[Any], path: Path, depth: int) -> Any:
        found: Any = self._whole
        for key in keys:
            if found is self._whole and isinstance(found.get(key), dict):
                found = self._extended(key, ())
            else:
                found = found.get(key) if isinstance(found, dict) and isinstance(key, str) else None
        if found is None or depth >= _REFERENCES_MAX:
            shown = ", ".join(map(str, keys))
            if "include" in self._whole:
                self._reader.note_names([shown], "References to what is in no file at hand")
            else:
                message = f"`!reference [{shown}]` names nothing that is here."
                self._reader.problem(path[:2], "unknown-label", message, "Correct the names.")
            return None
        return self._referenced(found, path, depth + 1)
