"""A workflow of GitHub Actions: a task for each job, and for each combination of a matrix, named as GitHub shows it.

A job with a matrix is a group of its tasks, which `needs` names as a whole; `max-parallel` is a limit of the group. A
failure does what it does there: the dependents are skipped, unless `continue-on-error` lets it pass or `if` asks for
it, and the rest goes on. Steps are kept as information, never run.
"""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.importers.shaping import Foreign, Imported, Reader, Shape
from taskgraph.documents.problems import Report, nearest
from taskgraph.documents.yaml_text import lines, parse_foreign
from taskgraph.model import limits
from taskgraph.model.json_strict import Path, show

_COMBINATIONS_MAX: Final = 10_000
_STATUS: Final = re.compile(r"\b(always|failure|cancelled|success)\s*\(\s*\)")


def convert(foreign: Foreign) -> Imported:
    reader = Reader(foreign.source)
    documents = parse_foreign(foreign.text, Report(foreign.source))
    obj, place = documents[0] if documents else (None, (1, None))
    reader.know_lines(lambda paths: lines(place, paths))
    whole = reader.mapping(obj, (), "The workflow")
    if whole and "jobs" not in whole:
        reader.problem((), "missing", "The workflow lacks the key `jobs`.", "Choose a file of `.github/workflows`.")
    jobs = {
        str(name): reader.mapping(job, ("jobs", name), f"The job {show(name)}")
        for name, job in reader.mapping(whole.get("jobs", {}), ("jobs",), "`jobs`").items()
    }
    shape = Shape(whole={"failurePolicy": "continue"})
    passed = {name for name, job in jobs.items() if job.get("continue-on-error") is True}
    conditions: list[str] = []
    for name, job in jobs.items():
        _job(name, job, jobs, passed, shape, reader)
        condition = job.get("if")
        if isinstance(condition, str) and not _STATUS.fullmatch(condition.strip("${} ")):
            conditions.append(name)
    reader.note_names(conditions, "Conditions that are not judged, so that these run")
    reader.note_names(
        (name for name, job in jobs.items() if isinstance(job.get("uses"), str)),
        "Jobs that call another workflow are one task each",
    )
    return reader.shaped(shape, name=whole.get("name"))


def _job(
    name: str, job: Mapping[str, Any], jobs: Mapping[str, Any], passed: set[str], shape: Shape, reader: Reader
) -> None:
    place: Path = ("jobs", name)
    node: dict[str, Any] = {"requires": _needs(name, job, jobs, passed, reader)}
    condition = job.get("if")
    asked = _STATUS.findall(condition) if isinstance(condition, str) else []
    if node["requires"] and asked:
        node["when"] = "always" if {"always", "cancelled"} & {*asked} else "all-completed"
        if "failure" in asked and node["when"] != "always":
            node["when"] = "always" if "success" in asked else "any-failed"
    minutes = job.get("timeout-minutes")
    if isinstance(minutes, int | float) and not isinstance(minutes, bool) and minutes > 0:
        node["maxRunTime"] = min(minutes * 60, limits.TIME_LIMIT_SECONDS_MAX)
    node["task"] = {"executor": "noop", "payload": _information(job)}
    strategy = job.get("strategy")
    strategy = strategy if isinstance(strategy, dict) else {}
    combinations = _combinations(name, strategy.get("matrix"), (*place, "strategy", "matrix"), reader)
    if combinations is None:
        label = reader.label(name)
        shape.tasks[label], shape.places[label] = node, place
        return
    made: list[str] = []
    for combination in combinations:
        label = reader.label(f"{name} ({', '.join(_shown(value) for value in combination.values())})")
        label = label if label not in shape.tasks else f"{label} #{len(made)}"
        task = {"executor": "noop", "payload": {**node["task"]["payload"], "matrix": combination}}
        shape.tasks[label], shape.places[label] = {**node, "task": task}, place
        made.append(label)
    group: dict[str, Any] = {"tasks": made}
    shape.groups[reader.label(name)] = group
    most = strategy.get("max-parallel")
    if isinstance(most, int) and 1 <= most <= limits.IN_FLIGHT_MAX:
        group["maxInFlight"] = most
    if strategy.get("fail-fast", True) is not False:
        reader.note("A combination of a matrix that fails does not cancel the others (`fail-fast`).")


def _needs(name: str, job: Mapping[str, Any], jobs: Mapping[str, Any], passed: set[str], reader: Reader) -> list[Any]:
    stated = job.get("needs", [])
    place: Path = ("jobs", name, "needs")
    found: dict[str, Any] = {}
    for need in [stated] if isinstance(stated, str) else reader.texts(stated, place, "`needs`"):
        if need in jobs:
            label = reader.label(need)
            found[need] = {"label": label, "optional": True} if need in passed else label
            continue
        near = "".join(f" Did you mean {show(one)}?" for one in nearest(need, jobs, 1))
        message = f"The job {show(name)} needs {show(need)}, which is no job of the workflow.{near}"
        reader.problem(place, "unknown-label", message, "Correct the name, or add the job.")
    return list(found.values())


def _information(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the job says, for people: its name, where it runs, what it calls, and the commands of its steps."""
    made: dict[str, Any] = {key: job[key] for key in ("name", "runs-on", "uses", "if") if isinstance(job.get(key), str)}
    steps = job.get("steps")
    commands = [
        step["run"] if isinstance(step.get("run"), str) else f"# uses {step['uses']}"
        for step in (steps if isinstance(steps, list) else [])
        if isinstance(step, dict) and (isinstance(step.get("run"), str) or isinstance(step.get("uses"), str))
    ]
    if commands:
        made["commandLine"] = "\n".join(command.rstrip() for command in commands)
    return made


def _combinations(name: str, matrix: Any, place: Path, reader: Reader) -> list[dict[str, Any]] | None:
    """The combinations of a matrix; None for a job without one, or with one that is known only when it runs."""
    if matrix is None:
        return None
    if isinstance(matrix, str):
        reader.note(f"The matrix of {show(name)} is computed when it runs: the job is one task.")
        return None
    axes: dict[str, list[Any]] = {}
    matrix = reader.mapping(matrix, place, "`matrix`")
    for axis, values in matrix.items():
        if axis in ("include", "exclude"):
            continue
        if isinstance(values, str):
            reader.note(f"The values of {show(axis)} in {show(name)} are computed when it runs: it counts as one.")
        axes[axis] = values if isinstance(values, list) else [values]
    size = 1
    for values in axes.values():
        size *= len(values)
    if size > _COMBINATIONS_MAX:
        message = f"The matrix of {show(name)} has {size:,} combinations."
        reader.problem(place, "too-many", message, f"At most {_COMBINATIONS_MAX:,} are read.")
        return []
    made = [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())] if axes else []
    excluded = _objects(matrix.get("exclude"), "exclude", name, reader)
    made = [each for each in made if not any(_excludes(gone, each) for gone in excluded)]
    return _included(made, _objects(matrix.get("include"), "include", name, reader), set(axes)) or None


def _excludes(gone: Mapping[str, Any], combination: Mapping[str, Any]) -> bool:
    return all(key in combination and _same(combination[key], value) for key, value in gone.items())


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or _shown(one) == _shown(other)


def _included(made: list[dict[str, Any]], includes: list[dict[str, Any]], axes: set[str]) -> list[dict[str, Any]]:
    """GitHub's rule: into each combination whose own values it does not change; if into none, as one more."""
    originals = [{key: each[key] for key in axes} for each in made]
    alone: list[dict[str, Any]] = []
    for include in includes:
        fits = [
            each
            for each, original in zip(made, originals, strict=True)
            if all(_same(original[key], value) for key, value in include.items() if key in original)
        ]
        for each in fits:
            each.update({key: value for key, value in include.items() if key not in axes})
        if not fits:
            alone.append(dict(include))
    return made + alone


def _objects(values: Any, key: str, name: str, reader: Reader) -> list[dict[str, Any]]:
    if isinstance(values, str):
        reader.note(f"`{key}` of the matrix of {show(name)} is computed when it runs: it was left out.")
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _shown(value: Any) -> str:
    """A value as GitHub shows it in the name of a job."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(map(_shown, value.values()))
    return ", ".join(map(_shown, value)) if isinstance(value, list) else json.dumps(value)
