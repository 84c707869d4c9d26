"""Commands over files alone, without a store: validate, plan, import."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import (
    STDIN,
    Session,
    check_graph_id,
    command,
    look_for_warnings,
    print_problems,
    read_checked,
    read_graph,
    read_source,
)
from taskgraph.interfaces.cli.options import ParamOption, StrictOption
from taskgraph.interfaces.cli.output import Column, count, edges_words, json_text, safe, seconds
from taskgraph.model.errors import InvalidGraph, InvalidInput, Problem
from taskgraph.storage.private_files import unwritable

if TYPE_CHECKING:
    from taskgraph.documents.importers import Format
    from taskgraph.documents.plan import Plan

_PATH_ENDS_SHOWN: Final = 10
_WAITERS_CHARS_MAX: Final = 72
_GROUPS_SHOWN: Final = 10


@command(
    "taskgraph validate graph.json",
    "taskgraph validate release.json --param version=1.4",
    "cat graph.json | taskgraph validate --json -",
    "taskgraph validate --expanded graph.yaml",
    options=("json", "verbose"),
)
def validate(
    session: Session,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Graphs: YAML, JSON or TOML; - for standard input.")
    ],
    extension: Annotated[
        bool, typer.Option("--extension", help="The files are extensions: they may name tasks of the graph.")
    ] = False,
    expanded: Annotated[
        bool,
        typer.Option("--expanded", help="Print each valid one as JSON, with its short forms written out."),
    ] = False,
    param: ParamOption = None,
    strict: StrictOption = False,
) -> int:
    """Check graphs, and say everything that is wrong with them.

    Every problem comes with file, line, JSON pointer, and what to do about it. What is legal and yet looks like a
    mistake is a warning, and no reason to fail, but with --strict.
    """
    results = [_validated(session, file, extension, expanded, param, strict) for file in files]
    session.answered(views.validated, results)
    return failures.DONE if all(each["valid"] for each in results) else failures.INVALID


def _validated(
    session: Session, file: str, extension: bool, expanded: bool, params: list[str] | None, strict: bool
) -> dict[str, Any]:
    output = session.output
    try:
        document, name = read_graph(file, "extension" if extension else "graph", params)
        found = look_for_warnings(session, document, name, strict=strict)
    except InvalidGraph as error:
        if not output.json:
            print_problems(output, error)
            output.fail(str(error))
        return views.invalid_file(error)
    made = None
    if expanded:
        from taskgraph.documents.canonical import document_object

        made = document_object(document)
    if made is not None and not output.json:
        output.document(made)
    elif not output.json:
        output.data(
            f"{name}: valid, {count(len(document.tasks), 'task')}, {edges_words(document.edges, document.groups)}"
            + (f", {count(len(found.problems), 'warning')}" if found.problems else "")
        )
    return views.valid_file(document, found, made)


class PlanFormat(StrEnum):
    TEXT = "text"
    TABLE = "table"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"


@command(
    "taskgraph plan graph.json",
    "taskgraph plan graph.json --format table",
    "taskgraph plan graph.json --format dot | dot -Tsvg -o graph.svg",
    options=("json", "verbose"),
)
def plan(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A graph: YAML, JSON or TOML; - for standard input.")],
    format: Annotated[  # noqa: A002  (as in other programs)
        PlanFormat, typer.Option("--format", "-f", help="text, its table alone, json, or a picture: mermaid, dot.")
    ] = PlanFormat.TEXT,
    full: Annotated[bool, typer.Option("--full", help="List every waiter and the whole critical path.")] = False,
    param: ParamOption = None,
    strict: StrictOption = False,
) -> None:
    """Show what a graph will be like: size, shape, critical path, dependency counts and waiters.

    Groups are looked through: a task that requires a group waits for each task in it. Nothing is written anywhere.
    Seconds are those of payload.seconds, where tasks have them.
    """
    json = session.output.json
    if json and format not in (PlanFormat.TEXT, PlanFormat.JSON):
        raise InvalidInput(f"--json and --format {format} contradict each other")
    document = read_checked(session, file, param, strict=strict)
    from taskgraph.documents import plan as planning

    out = session.output.out
    match PlanFormat.JSON if json else format:
        case PlanFormat.TABLE:
            for line in planning.to_table(planning.plan(document)).splitlines():
                out.line(safe(line))
        case PlanFormat.MERMAID:
            out.write(planning.to_mermaid(document))
        case PlanFormat.DOT:
            out.write(planning.to_dot(document))
        case PlanFormat.JSON:
            session.output.document(planning.to_json(planning.plan(document)))
        case PlanFormat.TEXT:
            _print_plan(session, planning.plan(document), full)


def _print_plan(session: Session, made: "Plan", full: bool) -> None:
    output = session.output
    out = output.out

    def most(number: int, label: str) -> str:
        return f"{number:,}" + (f"  {out.paint(f'({safe(label)})', 'dim')}" if label else "")

    shown = list(made.groups.items())[: None if full else _GROUPS_SHOWN]
    more = f", … {len(made.groups) - len(shown):,} more" if len(shown) < len(made.groups) else ""
    output.pairs(
        [
            ("tasks", f"{made.tasks:,}"),
            ("edges", f"{made.edges:,}" + (f", kept as {made.kept:,} by way of groups" if made.groups else "")),
            ("groups", ", ".join(f"{safe(name)} ({len(labels):,})" for name, labels in shown) + more),
            (
                "limits",
                ", ".join(f"{safe(f'{name} ' if name else '')}{n:,} at a time" for name, n in made.limits.items()),
            ),
            ("depth", f"{made.depth:,}"),
            ("width", f"{made.width:,}"),
            ("fan-in", most(made.fan_in_max, made.fan_in_label)),
            ("fan-out", most(made.fan_out_max, made.fan_out_label)),
            ("roots", f"{len(made.roots):,}"),
            ("leaves", f"{len(made.leaves):,}"),
            ("work", seconds(made.total_seconds) if made.total_seconds is not None else ""),
            (
                "critical path",
                f"{count(len(made.critical_path), 'task')}"
                + (f", {seconds(made.critical_seconds)}" if made.critical_seconds is not None else ""),
            ),
        ]
    )
    for line in _path_lines(made.critical_path, full):
        out.line(f"  {safe(line)}")
    out.line()
    timed = Column("SECONDS", lambda row: "" if row.seconds is None else f"{row.seconds:g}", number=True)
    columns = [
        Column("TASK", lambda row: row.label, flexible=True),
        Column("LEVEL", lambda row: str(row.level), number=True),
        Column("REQUIRES", lambda row: f"{row.ndeps:,}", number=True),
        *([timed] if made.total_seconds is not None else []),
        *([Column("WHEN", lambda row: row.condition)] if any(row.condition for row in made.rows) else []),
        Column("WAITERS", lambda row: f"{len(row.waiters):,}", number=True),
        Column("", lambda row: waiters_text(row.waiters, full), flexible=True),
    ]
    output.table(made.rows, columns)


def _path_lines(labels: tuple[str, ...], full: bool) -> list[str]:
    lines = [f"{'→ ' if index else ''}{label}" for index, label in enumerate(labels)]
    if full or len(lines) <= 2 * _PATH_ENDS_SHOWN + 1:
        return lines
    left = len(lines) - 2 * _PATH_ENDS_SHOWN
    return [*lines[:_PATH_ENDS_SHOWN], f"… {left:,} more (--full shows them) …", *lines[-_PATH_ENDS_SHOWN:]]


def waiters_text(labels: tuple[str, ...], full: bool) -> str:
    """Labels in a line; unless full only the first ones, and the number of the others."""
    shown: list[str] = []
    length = 0
    for label in labels:
        length += len(label) + 2
        if not full and shown and length > _WAITERS_CHARS_MAX:
            return f"{', '.join(shown)}, … {len(labels) - len(shown):,} more"
        shown.append(label)
    return ", ".join(shown)


class ImportFormat(StrEnum):
    NEUTRAL = "neutral"
    WFFORMAT = "wfformat"
    TASKGRAPH = "taskgraph"
    DAGMAN = "dagman"
    GITHUB_ACTIONS = "github-actions"
    GITLAB_CI = "gitlab-ci"
    MAKE = "make"
    NINJA = "ninja"
    AIRFLOW = "airflow"
    ARGO = "argo"
    SNAKEMAKE = "snakemake"


class External(StrEnum):
    """What to do with a dependency on a task that the file does not hold."""

    SATISFIED = "satisfied"
    REJECT = "reject"


@command(
    "taskgraph import build.ninja -o graph.json",
    "LC_ALL=C make -pn all | taskgraph import --from make - | taskgraph plan -",
    "taskgraph import .github/workflows/ci.yml | taskgraph run - --executor noop",
    "taskgraph import --from wfformat montage.json -o graph.json",
    options=("verbose",),
)
def import_(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file, gzipped or not; - for standard input.")],
    from_: Annotated[
        ImportFormat | None,
        typer.Option(
            "--from",
            help="neutral: tasks by label with requires, runtimeSeconds, command. wfformat: WfCommons 1.4 and 1.5. "
            "taskgraph: full-task-graph.json of Mozilla's taskgraph. make: what make -pn prints. airflow: serialized "
            "JSON, DOT, or a plain file. snakemake: what snakemake --dag prints. Without it, the name and the content "
            "of the file say it, where they are certain.",
        ),
    ] = None,
    out: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="Where to write the graph; - for standard output.")
    ] = STDIN,
    goal: Annotated[
        list[str] | None,
        typer.Option(
            "--goal",
            metavar="NAME",
            help="make, ninja: a target, several if repeated. argo: the template to begin with. airflow: the DAG.",
        ),
    ] = None,
    commands: Annotated[
        bool, typer.Option("--commands", help="make, ninja: tasks that run the commands, in place of doing nothing.")
    ] = False,
    external: Annotated[
        External, typer.Option("--external", help="taskgraph: dependencies on tasks that the file does not hold.")
    ] = External.SATISFIED,
    executor: Annotated[
        str, typer.Option("--executor", metavar="NAME", help="taskgraph: who runs the imported payloads.")
    ] = "noop",
    graph_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="taskgraph: the graph's future id, for references inside texts."),
    ] = None,
) -> None:
    """Turn a graph of another program into one that can be submitted.

    The shape and what is known of the tasks are kept; commands of other authors are kept as information, and
    are executed only with --commands: a task with a known runtime sleeps, any other does nothing. Notes on stderr say
    what was left out.
    """
    if graph_id is not None:
        check_graph_id(graph_id, new=True)
    data, name, _ = read_source(file)
    from taskgraph.documents.canonical import document_object
    from taskgraph.documents.importers import import_graph
    from taskgraph.interfaces import document_files

    said: dict[str, Any] = {"external": external.value, "executor": executor, "graph_id": graph_id}
    if file != STDIN:
        said["beside"] = document_files.texts_beside(Path(file))
    format_ = _format_of(file, data) if from_ is None else from_.value
    imported = import_graph(data, format_, source=name, goals=tuple(goal or ()), commands=commands, **said)
    text = json_text(document_object(imported.document), ascii_only=not session.output.out.unicode)
    if out == STDIN:
        session.output.out.write(text + "\n")
    else:
        try:
            Path(out).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise unwritable(out, error) from error
    for note in imported.notes:
        session.output.say(f"note: {note}")
    where = "" if out == STDIN else f" written to {out}"
    edges = edges_words(imported.document.edges, imported.document.groups)
    session.output.say(f"{count(len(imported.document.tasks), 'task')}, {edges}{where}")


def _format_of(file: str, data: bytes) -> "Format":
    """What the name or the content of a file says. Raises InvalidGraph where they say nothing certain."""
    from taskgraph.documents.importers.guess import guessed

    found = guessed("" if file == STDIN else Path(file).absolute().as_posix(), data)
    if found is None:
        remedy = f"Name one by --from: {', '.join(each.value for each in ImportFormat)}."
        problem = Problem("", "format", "Neither name nor content say which format it is.", remedy)
        raise InvalidGraph([problem], "standard input" if file == STDIN else file)
    return found
