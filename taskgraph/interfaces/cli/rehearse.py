"""The command `rehearse`: when a graph would end, or the rest of one that runs, what decides it, what would help."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces.cli import options
from taskgraph.interfaces.cli.common import STDIN, Session, command, read_checked
from taskgraph.interfaces.cli.output import Column, Output, count, moment, safe, seconds
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.rehearse import Collected, Wanted
    from taskgraph.rehearsal.forecast import Forecast

_DOCUMENT_ENDINGS: Final = (".json", ".yaml", ".yml", ".toml")
_PATH_SHOWN: Final = 10
_DEADLINES_SHOWN: Final = 10
_RISKS: Final = "deadlines at risk"


@dataclass(frozen=True)
class WhatIf:
    """What is supposed."""

    slots: Annotated[
        str | None,
        typer.Option(
            "--slots",
            metavar="N",
            help="Tasks that run side by side: 8 of all targets together, or default=8,gpu=1, or default+gpu=8. "
            "Otherwise those of the workers that there are; for a file those of `taskgraph run`.",
        ),
    ] = None
    history: Annotated[
        int,
        typer.Option("--history", min=0, max=100, metavar="N", help="Learn from the last N graphs of its name."),
    ] = 5
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=1_000, metavar="N", help="Rehearse so many times, each by chance.")
    ] = 20
    seconds_of: Annotated[
        list[str] | None,
        typer.Option(
            "--seconds",
            metavar="SECONDS",
            help="What a task takes of which nothing is known: 30, or command=30 by executor. 60 otherwise.",
        ),
    ] = None
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="N",
            help="What if so many tasks ran at a time, of the graph or GROUP=N; 0 for any number.",
        ),
    ] = None
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="TASK", help="What if this task took no time.")
    ] = None
    fail: Annotated[list[str] | None, typer.Option("--fail", metavar="TASK", help="What if this task failed.")] = None

    def wanted(self) -> "Wanted":
        """Raises InvalidInput."""
        from taskgraph.interfaces.cli.serve import default_slots
        from taskgraph.interfaces.operations.rehearse import Wanted, read_limits, read_seconds, read_slots

        return Wanted(
            slots=read_slots(self.slots) if self.slots else {},
            slots_default=default_slots(),
            history=self.history,
            seeds=self.seeds,
            seconds=read_seconds(self.seconds_of or ()),
            limits=read_limits(self.limit or ()),
            drop=self.drop or (),
            fail=self.fail or (),
        )


@command(
    "taskgraph rehearse graph.json",
    "taskgraph rehearse graph.json --slots default=8,gpu=1",
    "taskgraph rehearse nightly-2026-08-01",
    "taskgraph rehearse nightly-2026-08-01 --slots 16 --limit deploys=1 --drop 'lint'",
    "taskgraph rehearse graph.json --seconds command=30 --json",
)
def rehearse(
    session: Session,
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|ID",
            help="A graph that is not submitted yet: YAML, JSON or TOML, - for standard input; or the id of one that "
            "runs or is blocked.",
        ),
    ],
    about: WhatIf = WhatIf(),
    runs: Annotated[
        bool, typer.Option("--runs", help="With --json: with each run that ends in the rehearsal in the middle.")
    ] = False,
    param: options.ParamOption = None,
    strict: options.StrictOption = False,
) -> None:
    """Forecast when a graph ends, by rehearsing it in virtual time with the handlers and workers that will run it.

    Tasks only wait: for as long as their runs took in the last graphs of the same name or schedule, for
    payload.seconds, or for --seconds. Nothing is written, and nothing runs.
    """
    wanted = about.wanted()
    from taskgraph.interfaces.operations import rehearse as rehearsing

    if _is_file(what):
        document = read_checked(session, what, param, strict=strict)
        collected = session.open(lambda app: rehearsing.collect_for_document(app, document, wanted))
        name = what
    else:
        if param or strict:
            raise InvalidInput("--param and --strict go with a FILE: a graph that exists has its values")

        async def collect(app: "App", graph_id: str) -> "Collected":
            return await rehearsing.collect_for_graph(app, graph_id, wanted)

        name, collected = session.open_graph(what, collect)
    found = _played(session, collected)
    from taskgraph.rehearsal.answer import to_json

    if not session.answered(to_json, found, runs=len(found.runs) if runs else 0):
        _print(session.output, found, name)


def _is_file(what: str) -> bool:
    return what == STDIN or what.lower().endswith(_DOCUMENT_ENDINGS) or Path(what).is_file()


def _played(session: Session, collected: "Collected") -> "Forecast":
    from taskgraph.interfaces.cli.progress import counting
    from taskgraph.model.clock import SystemClock

    def words(done: int, of: int | None) -> str:
        return f"rehearsed {done} of {count(of or 0, 'time')}"

    with counting(session.output, SystemClock(), "rehearsing", words) as progress:
        return collected.forecast(progress)


def _print(output: Output, found: "Forecast", name: str) -> None:
    p10, p50, p90 = found.seconds
    spread = f"  ({seconds(p10)} to {seconds(p90)} in 8 of 10)" if found.seeds > 1 else ""
    first, middle, last = found.finishes
    between = f"  ({moment(first)} to {moment(last)})" if found.seeds > 1 else ""
    benches = ", ".join(f"{safe('+'.join(bench.targets))} {bench.slots:,}" for bench in found.benches)
    output.out.line(f"{output.out.paint(safe(name), 'bold')}  {count(found.tasks, 'task')}")
    all_finish = found.ends == {"finished": found.seeds}
    output.pairs(
        [
            ("takes" if found.finishing else "moves for", f"{seconds(p50)}{spread}"),
            ("finishes" if found.finishing else "stands at", f"{moment(middle)}{between}"),
            ("ends", "" if all_finish else _ends(found)),
            ("slots", benches),
            ("seconds from", _sources(found)),
            ("without", _left_out(found)),
            ("corrected", _corrections(found)),
            ("storage", _storage(found)),
            ("costs", _cost(found)),
        ]
    )
    _print_rest(output, found)


def _ends(found: "Forecast") -> str:
    words = ", ".join(f"{state or 'missing'} {number} of {found.seeds}" for state, number in sorted(found.ends.items()))
    stays = ", ".join(f"{number:,} {state}" for state, number in found.stays.items())
    paused = f"; paused: {', '.join(map(safe, found.paused))}" if found.paused and found.stays else ""
    return f"{words}; {stays} at its end{paused}" if stays and not found.finishing else words


def _sources(found: "Forecast") -> str:
    alone = ", which shows nothing of how graphs differ" if len(found.past) == 1 else ""
    words = {
        "history": f"the runs of {count(len(found.past), 'graph')}{alone}",
        "document": "payload.seconds",
        "assumed": "--seconds, as nothing is known",
    }
    shown = [
        f"{text} ({count(found.sources[name], 'task')})" for name, text in words.items() if found.sources.get(name)
    ]
    return ", ".join(shown)


def _left_out(found: "Forecast") -> str:
    names = ", ".join(f"“{safe(name)}”" for name in found.left_out)
    return f"the tasks that results will come to: {names}" if names else ""


def _corrections(found: "Forecast") -> str:
    if not found.corrections:
        return ""
    least, most = min(found.corrections), max(found.corrections)
    return f"times {least:.3f} to {most:.3f}, as rehearsals of these graphs were off"


def _storage(found: "Forecast") -> str:
    whole = sum(found.operations.values())
    words = f"{whole:,} operations, {found.rows_per_second:,} rows/s at most"
    from taskgraph.rehearsal.forecast import ROWS_PER_SECOND_MAX

    if found.rows_per_second > ROWS_PER_SECOND_MAX:
        words += f": Azure throttles beyond {ROWS_PER_SECOND_MAX:,} for one graph"
    return words


def _cost(found: "Forecast") -> str:
    """In all, with what has been spent."""
    p10, p50, p90 = found.cost.amounts
    currency, budget = found.cost.pricing.prices.currency, found.cost.pricing.budget
    spread = f"  ({p10:.4g} to {p90:.4g} in 8 of 10)" if found.seeds > 1 else ""
    words = f"{p50:.4g} {currency}{spread}"
    if budget is not None:
        words += f"; over its budget of {budget.amount:g} in {found.cost.over:.0%} of the rehearsals"
    return words


def _print_rest(output: Output, found: "Forecast") -> None:
    out = output.out
    if found.waits:
        out.line()
        columns = [
            Column("WAITS FOR", lambda each: _waits_for(each.wait), flexible=True),
            Column("TASKS", lambda each: f"{each.wait.tasks:,}", number=True),
            Column("TASK-SECONDS", lambda each: f"{each.wait.seconds:,.0f}", number=True),
            Column("ONE MORE", lambda each: _gain(each.seconds)),
        ]
        output.table(found.waits, columns)
    if found.deadlines:
        out.line()
        out.line(f"{_RISKS}:")
        for each in found.deadlines[:_DEADLINES_SHOWN]:
            whose = f"task {safe(each.label)}" if each.label else "the graph"
            out.line(f"  {whose}, {moment(each.deadline)}: missed in {each.share:.0%} of the rehearsals")
        if len(found.deadlines) > _DEADLINES_SHOWN:
            out.line(out.paint(f"  {len(found.deadlines) - _DEADLINES_SHOWN:,} more (--json)", "dim"))
    if found.path:
        out.line()
        _print_path(output, found)


def _waits_for(wait: Any) -> str:
    if wait.kind == "slots":
        return f"{count(wait.most, 'slot')} of {safe(wait.name)}"
    return f"the limit {wait.most:,} of {safe(wait.name) or 'the graph'}"


def _gain(gained: float | None) -> str:
    if gained is None:
        return ""
    return f"{seconds(gained)} sooner" if gained >= 0.001 else "nothing"


def _print_path(output: Output, found: "Forecast") -> None:
    out = output.out
    ran = sum(each.step.ran_seconds for each in found.path)
    whole = sum(each.step.seconds for each in found.path)
    out.line(
        f"critical path: {count(len(found.path), 'task')}, {seconds(whole)}, of which {seconds(ran)} running; "
        "the longest of it:"
    )
    listed: Sequence[Any] = sorted(found.path, key=lambda each: -each.step.seconds)[:_PATH_SHOWN]
    columns = [
        Column("TASK", lambda each: each.step.label, flexible=True),
        Column("RUNS", lambda each: seconds(each.step.ran_seconds), number=True),
        Column("WAITS", lambda each: seconds(each.step.waited_seconds), number=True),
        Column("SLACK", lambda each: seconds(each.slack), number=True),
    ]
    output.table([each for each in found.path if each in listed], columns)
