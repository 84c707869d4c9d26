"""A .gitlab-ci.yml: a task for each job, and for each of `parallel`, named as GitLab shows it.

Without `needs` a job waits for the stages before its own: a stage is a group. A failure does what it does there: what
waits for it is skipped, unless `allow_failure` lets it pass or `when` asks for it, and the rest goes on. Rules are not
judged: each job is there, unless it says `when: never`. Scripts are kept as information, never run.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.importers import gitlab_text
from taskgraph.documents.importers.shaping import Foreign, Imported, Reader, Shape
from taskgraph.documents.problems import nearest
from taskgraph.model import limits
from taskgraph.model.json_strict import Path, show

_COMBINATIONS_MAX: Final = 10_000
_STAGES: Final = ("build", "test", "deploy")
_MAKES_JOB: Final = frozenset({"script", "trigger", "run", "release", "pages", "extends"})
_SPAN: Final = re.compile(r"([0-9.]+)\s*([a-z]*)")
_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WHEN: Final = {"on_failure": "any-failed", "always": "always"}


@dataclass(slots=True)
class _Job:
    name: str
    keys: dict[str, Any]
    stage: str
    labels: dict[str, dict[str, Any]] = field(default_factory=dict)  # variables of each copy of it

    @property
    def passed(self) -> bool:
        """Whether others go on when it fails."""
        manual = self.keys.get("when") == "manual" and "allow_failure" not in self.keys
        return bool(self.keys.get("allow_failure")) or manual


def convert(foreign: Foreign) -> Imported:
    reader = Reader(foreign.source)
    whole = gitlab_text.read(foreign, reader)
    stages = _stages(whole.get("stages", whole.get("types")), reader)
    defaults = whole["default"] if isinstance(whole.get("default"), dict) else {}
    jobs: dict[str, _Job] = {}
    for name, keys in whole.items():
        if name in gitlab_text.RESERVED or name.startswith(".") or not isinstance(keys, dict):
            continue
        if not _MAKES_JOB & keys.keys():
            reader.note_names([name], "What is no job, and was left out")
        elif keys.get("when") == "never":
            reader.note_names([name], "Jobs that never run, and were left out")
        else:
            jobs[name] = job = _Job(name, {**defaults, **keys}, str(keys.get("stage", "test")))
            if job.stage not in stages and "extends" in job.keys:
                reader.note_names([name], "Jobs of a stage that is in no file at hand wait for none")
            elif job.stage not in stages:
                near = "".join(f" Did you mean {show(one)}?" for one in nearest(job.stage, stages, 1))
                message = f"The job {show(name)} is of the stage {show(job.stage)}, which is not declared.{near}"
                reader.problem((name, "stage"), "unknown-label", message, "Add it to `stages`.")
            job.labels = _copies(job, reader)
    reader.stop_if_any()
    shape = Shape(whole={"failurePolicy": "continue"})
    _add(jobs, stages, "include" in whole, shape, reader)
    _say(jobs, reader)
    return reader.shaped(shape)


def _stages(stated: Any, reader: Reader) -> list[str]:
    names = [*_STAGES] if stated is None else [str(each) for each in reader.array(stated, ("stages",), "`stages`")]
    return [*dict.fromkeys((".pre", *(name for name in names if name not in (".pre", ".post")), ".post"))]


def _copies(job: _Job, reader: Reader) -> dict[str, dict[str, Any]]:
    parallel = job.keys.get("parallel")
    place: Path = (job.name, "parallel")
    if isinstance(parallel, int) and not isinstance(parallel, bool) and 1 <= parallel <= _COMBINATIONS_MAX:
        return {reader.label(f"{job.name} {index}/{parallel}"): {} for index in range(1, parallel + 1)}
    if isinstance(parallel, dict) and "matrix" in parallel:
        found: dict[str, dict[str, Any]] = {}
        for index, each in enumerate(reader.array(parallel["matrix"], (*place, "matrix"), "`matrix`")):
            entry = reader.mapping(each, (*place, "matrix", index), f"Item {index} of `matrix`")
            values = [value if isinstance(value, list) else [value] for value in entry.values()]
            for combination in itertools.islice(itertools.product(*values), _COMBINATIONS_MAX):
                label = reader.label(f"{job.name}: [{', '.join(map(str, combination))}]")
                found[label] = dict(zip(entry, combination, strict=True))
        return found or {reader.label(job.name): {}}
    if parallel is not None:
        message = f"`parallel` of {show(job.name)} is {show(parallel)}."
        reader.problem(place, "out-of-range", message, "Write a whole number, or an object with `matrix`.")
    return {reader.label(job.name): {}}


def _add(jobs: Mapping[str, _Job], stages: list[str], including: bool, shape: Shape, reader: Reader) -> None:
    for job in jobs.values():
        if len(job.labels) > 1 or reader.label(job.name) not in job.labels:
            shape.groups[reader.label(job.name)] = {"tasks": [*job.labels]}
    behind = _stage_groups(jobs, stages, shape, reader)
    resources: dict[str, list[str]] = {}
    for job in jobs.values():
        requires = _needs(job, jobs, including, reader) if "needs" in job.keys else behind.get(job.stage, [])
        node: dict[str, Any] = {"requires": requires}
        when = _WHEN.get(str(job.keys.get("when")))
        if when is not None and requires:
            node["when"] = when
        if reruns := _retries(job.keys.get("retry")):
            node["reruns"] = reruns
        if seconds := _seconds(job.keys.get("timeout")):
            node["maxRunTime"] = min(seconds, limits.TIME_LIMIT_SECONDS_MAX)
        for label, variables in job.labels.items():
            payload = _information(job.keys)
            if variables:
                payload["matrix"] = variables
            shape.tasks[label] = {**node, "task": {"executor": "noop", "payload": payload}}
            shape.places[label] = (job.name,)
        if isinstance(job.keys.get("resource_group"), str):
            resources.setdefault(job.keys["resource_group"], []).extend(job.labels)
    required = {each for node in shape.tasks.values() for each in node["requires"] if isinstance(each, str)}
    shape.groups = {name: group for name, group in shape.groups.items() if name in required or name in jobs}
    for name, members in resources.items():
        shape.limit(f"resource {name}", members, 1, reader)


def _stage_groups(jobs: Mapping[str, _Job], stages: list[str], shape: Shape, reader: Reader) -> dict[str, list[Any]]:
    """What a job of each stage requires that has no `needs`: the stages before, as far as one waits for another.

    A stage with a job that waits for stages waits for all before it. One job that may fail is required by itself.
    """
    behind: dict[str, list[Any]] = {}
    before: list[Any] = []
    for stage in stages:
        behind[stage] = before
        members = [job for job in jobs.values() if job.stage == stage]
        strict = [label for job in members if not job.passed for label in job.labels]
        here: list[Any] = [{"label": label, "optional": True} for job in members if job.passed for label in job.labels]
        if len(strict) > 1:
            name = shape.free(reader.label(f"stage {stage}"))
            shape.groups[name] = {"tasks": strict}
            here.append(name)
        else:
            here += strict
        waits = any("needs" not in job.keys and not job.passed for job in members)
        before = here if waits else [*before, *here]
    return behind


def _needs(job: _Job, jobs: Mapping[str, _Job], including: bool, reader: Reader) -> list[Any]:
    place: Path = (job.name, "needs")
    stated = job.keys["needs"]
    copies = {label: other for other in jobs.values() for label in other.labels if label != other.name}
    found: dict[str, Any] = {}
    for each in stated if isinstance(stated, list) else [stated]:
        need = each.get("job") if isinstance(each, dict) else each
        if isinstance(each, dict) and ("project" in each or "pipeline" in each or need is None):
            reader.note_names([job.name], "Jobs that need one of another pipeline, which is left out")
        elif not isinstance(need, str):
            reader.text(need, place, "A job in `needs`")
        elif need in copies:
            found[need] = {"label": need, "optional": True} if copies[need].passed else need
        elif need not in jobs:
            if isinstance(each, dict) and each.get("optional"):
                continue
            if including:
                reader.note_names([need], "Needed jobs that are in no file at hand")
                continue
            near = "".join(f" Did you mean {show(one)}?" for one in nearest(need, jobs, 1))
            message = f"The job {show(job.name)} needs {show(need)}, which is no job here.{near}"
            reader.problem(place, "unknown-label", message, "Correct the name, or add the job.")
        else:
            for label in _needed(jobs[need], each, reader):
                found[label] = {"label": label, "optional": True} if jobs[need].passed else label
    return list(found.values())


def _needed(job: _Job, need: Any, reader: Reader) -> list[str]:
    """The job by its name, which is that of a group if there are several; or those of a matrix that are named."""
    parallel = need.get("parallel") if isinstance(need, dict) else None
    matrix = parallel.get("matrix") if isinstance(parallel, dict) else None
    if isinstance(matrix, list):
        wanted = [each for each in matrix if isinstance(each, dict)]
        return [
            label
            for label, values in job.labels.items()
            if any(all(_fits(values.get(key), value) for key, value in each.items()) for each in wanted)
        ]
    return [reader.label(job.name)]


def _fits(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def _retries(stated: Any) -> int:
    most = stated.get("max", 0) if isinstance(stated, dict) else stated
    return most if isinstance(most, int) and not isinstance(most, bool) and 0 < most <= limits.RERUNS_MAX else 0


def _seconds(span: Any) -> float:
    """Of a text such as `1h 30m` or `3 hours`; 0 for what is none."""
    if not isinstance(span, str):
        return float(span) if isinstance(span, int) and span > 0 else 0
    parts = _SPAN.findall(span.lower().replace("months", "").replace("month", ""))
    return sum(float(number) * _SECONDS.get(unit[:1], 1) for number, unit in parts if number.count(".") < 2)


def _information(keys: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {key: keys[key] for key in ("image", "stage", "when") if isinstance(keys.get(key), str)}
    script = keys.get("script")
    commands = [each for each in (script if isinstance(script, list) else [script]) if isinstance(each, str)]
    if commands:
        made["commandLine"] = "\n".join(commands)
    return made


def _say(jobs: Mapping[str, _Job], reader: Reader) -> None:
    def having(*keys: str) -> list[str]:
        return [name for name, job in jobs.items() if not job.keys.keys().isdisjoint(keys)]

    reader.note_names(having("rules", "only", "except"), "Rules that are not judged, so that these run")
    reader.note_names(having("trigger"), "Jobs that trigger another pipeline are one task each")
    manual = [name for name, job in jobs.items() if job.keys.get("when") == "manual"]
    reader.note_names(manual, "Jobs that a person starts there run by themselves here")
