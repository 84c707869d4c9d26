"""The commands `schedule …`: graphs that are submitted by the clock."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion
from taskgraph.interfaces.cli.common import Session, command, read_checked
from taskgraph.interfaces.cli.options import GraphFileArgument, ParamOption, StrictOption
from taskgraph.interfaces.cli.output import Column, count, moment, safe, seconds
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.documents.recurrence import Times
    from taskgraph.engine.schedules import ScheduleDetail
    from taskgraph.interfaces.app import App
    from taskgraph.protocol.schedule_rules import Run, Schedule

_LENGTH: Final = re.compile(r"(\d{1,9})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=completion.schedules, help="The name of the schedule.")
]
OneArgument = Annotated[
    str | None, typer.Argument(metavar="[NAME]", autocompletion=completion.schedules, help="The name of the schedule.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Instead of a name: every schedule of the store.")]


@dataclass(frozen=True)
class ScheduleOptions:
    """Options of `schedule create` and `schedule update`."""

    cron: Annotated[
        str | None,
        typer.Option(
            "--cron",
            metavar="CRON",
            help="Fire by cron: minute, hour, day, month, weekday, such as '30 2 * * 1-5'; or @hourly, @daily, "
            "@weekly, @monthly, @yearly.",
        ),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone", metavar="ZONE", help="The time zone of --cron, such as Europe/Berlin; UTC otherwise."
        ),
    ] = None
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Fire again and again: 30s, 5m, 12h, 7d.")
    ] = None
    anchor: Annotated[
        str | None,
        typer.Option(
            "--anchor",
            metavar="TIME",
            help="Count --every from this time on, such as 2026-01-01T06:00+01:00; from now otherwise.",
        ),
    ] = None
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Fire once, at a time such as 2026-12-24T18:00+01:00.")
    ] = None
    catch_up: Annotated[
        str | None,
        typer.Option(
            "--catch-up",
            metavar="none|last|all",
            help=f"What becomes of fires that come up more than {limits.SCHEDULE_LATE_SECONDS / 60:g} minutes late, as "
            "no process ran: none of them fires, the last one, or each in order. Otherwise last.",
        ),
    ] = None
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            metavar="skip|queue|cancel|allow",
            help="What becomes of a fire while the graph of an earlier one is not over: it is left out, it waits, it "
            "waits and that graph is cancelled, or it fires. Otherwise skip.",
        ),
    ] = None
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            min=1,
            max=limits.SCHEDULE_WAITING_MAX,
            metavar="N",
            help=f"With --overlap queue: at most so many fires wait. Otherwise {limits.SCHEDULE_FIRES_MAX}.",
        ),
    ] = None

    def times(self) -> "Times":
        """Raises InvalidInput."""
        from taskgraph.documents.recurrence import Times

        return Times(
            cron=self.cron,
            timezone=self.timezone,
            every=None if self.every is None else _length(self.every),
            anchor=None if self.anchor is None else _moment("--anchor", self.anchor),
            at=None if self.at is None else _moment("--at", self.at),
        )


def _length(text: str) -> int:
    found = _LENGTH.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidInput(f"--every “{text}”: a number and its unit: 30s, 5m, 12h, 7d")
    return int(found[1]) * _UNITS[found[2]]


def _moment(option: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{option} “{text}”: write a time such as 2026-12-24T18:00+01:00") from error
    if found.tzinfo is None:
        raise InvalidInput(f"{option} “{text}” has no time zone; write Z or an offset such as +01:00 behind it")
    return found


@command(
    "taskgraph schedule create nightly graph.json --cron '30 2 * * *' --timezone Europe/Berlin",
    "taskgraph schedule create poll poll.json --every 5m --overlap skip --catch-up none",
    "taskgraph schedule create launch launch.json --at 2026-12-24T18:00+01:00 --param version=1.4",
    "taskgraph schedule create billing bill.json --cron '0 6 1 * *' --catch-up all --overlap queue",
)
def create(
    session: Session,
    name: NameArgument,
    file: GraphFileArgument,
    given: ScheduleOptions = ScheduleOptions(),
    param: ParamOption = None,
    strict: StrictOption = False,
    inactive: Annotated[bool, typer.Option("--inactive", help="It fires only once it is activated.")] = False,
) -> None:
    """Let a graph be submitted by the clock.

    taskgraph serve, or the function app, must run for that. Each fire is a graph of its own, NAME and the time of the
    fire in UTC: nightly-20260801T003000Z. The same schedule again changes nothing; another one of the same name is
    refused.
    """
    times = given.times()
    times.over()  # what cannot be is said before anything is read
    document = read_checked(session, file, param, strict=strict)

    async def create(app: "App") -> None:
        from taskgraph.interfaces.operations.schedules import checked_rules

        rules = checked_rules(given.catch_up, given.overlap, given.keep)
        schedule, outcome = await app.schedules().create(name, document, times.over(), active=not inactive, **rules)
        await _print_changed(app, session, schedule, str(outcome))

    session.open(create, measured=True)


@command(
    "taskgraph schedule update nightly graph.json",
    "taskgraph schedule update nightly --cron '0 4 * * *'",
    "taskgraph schedule update nightly --timezone Europe/Berlin",
)
def update(
    session: Session,
    name: NameArgument,
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="Another graph; - for standard input.")] = None,
    given: ScheduleOptions = ScheduleOptions(),
    param: ParamOption = None,
    strict: StrictOption = False,
) -> None:
    """Change a schedule: what is given, and nothing else.

    A fire that has begun goes on with the graph that it began with; the next one, and what waits, takes the new one.
    New fields of cron keep their time zone, and a new interval the time that it is counted from. What new times bring
    next is later than now.
    """
    times = given.times()
    if file is None and param:
        raise InvalidInput("--param goes with a FILE: the graph that a schedule has was given its values with it")
    document = None if file is None else read_checked(session, file, param, strict=strict)

    async def update(app: "App") -> None:
        from taskgraph.interfaces.operations.schedules import checked_rules

        rules = checked_rules(given.catch_up, given.overlap, given.keep)
        schedule = await app.schedules().update(name, document=document, times=times, **rules)
        await _print_changed(app, session, schedule, "updated")

    session.open(update, measured=True)


@command("taskgraph schedule activate nightly", "taskgraph schedule activate --all")
def activate(session: Session, name: OneArgument = None, every_one: AllOption = False) -> None:
    """Let a schedule fire again, or all of them.

    What would have fired meanwhile fires only as the schedule's catch-up says: with none, nothing of it does. --all
    names those that were inactive.
    """
    _switch(session, name, every_one, active=True)


@command("taskgraph schedule deactivate nightly", "taskgraph schedule deactivate --all")
def deactivate(session: Session, name: OneArgument = None, every_one: AllOption = False) -> None:
    """Let a schedule fire no more, or none of them, until it is activated. Graphs that it has fired go on.

    --all names those that were active.
    """
    _switch(session, name, every_one, active=False)


def _switch(session: Session, name: str | None, every_one: bool, *, active: bool) -> None:
    if (name is None) is not every_one:
        raise InvalidInput("name the schedule, or say --all; one of the two")
    outcome = "active" if active else "inactive"
    if name is None:
        changed = session.open(lambda app: app.schedules().set_all(active=active), measured=True)
        _print_all_changed(session, changed, outcome)
        return

    async def switch(app: "App") -> None:
        await _print_changed(app, session, await app.schedules().set_active(name, active=active), outcome)

    session.open(switch, measured=True)


@command("taskgraph schedule delete nightly")
def delete(session: Session, name: NameArgument) -> None:
    """Delete a schedule. Graphs that it has fired stay, and go on."""

    async def delete(app: "App") -> None:
        await _print_changed(app, session, await app.schedules().delete(name), "deleted")

    session.open(delete, measured=True)


@command("taskgraph schedule run-now nightly")
def run_now(session: Session, name: NameArgument) -> None:
    """Submit the graph of a schedule now; the id of the graph goes to stdout.

    It does not matter whether the schedule is active, and whether an earlier graph is over. Its times stay as they are.
    """
    submission = session.open(lambda app: app.schedules().run_now(name), measured=True)
    output = session.output
    if session.answered(views.fired, name, submission):
        return
    output.data(submission.graph_id)
    output.say(f"graph {submission.graph_id}: {submission.outcome}, {count(submission.tasks, 'task')}")
    output.hint(f"watch it: taskgraph watch {submission.graph_id}{session.store_words}")


@command("taskgraph schedule list", "taskgraph schedule list --json")
def list_(session: Session) -> None:
    """List the schedules, with the next and the last fire of each."""
    found = session.open(lambda app: app.schedules().listed())
    output = session.output
    if session.output.json:
        output.document(views.schedules(found))
    elif found:
        columns = [
            Column("SCHEDULE", lambda each: each.name),
            Column("WHEN", lambda each: each.recurrence.words()),
            Column("NEXT", lambda each: moment(each.next) if each.active else "inactive"),
            Column("LAST", lambda each: moment(each.last_fired)),
            Column("FIRED", lambda each: f"{each.fired:,}", number=True),
            Column("", lambda each: each.error, flexible=True),
        ]
        output.table(found, columns)
    else:
        output.say(f"there are no schedules in {session.settings.display}")


@command("taskgraph schedule show nightly", "taskgraph schedule show nightly --json")
def show(session: Session, name: NameArgument) -> None:
    """Show a schedule: its next fires and its last ones, and what keeps it from firing, with the remedy."""
    found = session.open(lambda app: app.schedules().show(name))
    if not session.answered(views.schedule_detail, found):
        _print_detail(session, found)


async def _print_changed(app: "App", session: Session, schedule: "Schedule", outcome: str) -> None:
    from taskgraph.interfaces.operations import handlers

    output = session.output
    if session.answered(views.schedule_changed, schedule, outcome):
        return
    output.data(schedule.name)
    output.say(f"schedule {schedule.name}: {outcome}, {schedule.recurrence.words()}")
    if outcome == "deleted":
        return
    if not schedule.active:
        output.hint(f"it is inactive: taskgraph schedule activate {schedule.name}{session.store_words}")
    elif schedule.next is not None:
        output.say(f"it fires next at {moment(schedule.next)}")
        if not await handlers.seen(app):
            output.hint(f"a process must look at the clock: taskgraph serve{session.direct_words}, or the function app")


def _print_all_changed(session: Session, changed: "Sequence[Schedule]", outcome: str) -> None:
    output = session.output
    if session.answered(views.schedules_changed, changed, outcome):
        return
    for each in changed:
        output.data(each.name)
    if changed:
        output.say(f"{count(len(changed), 'schedule')}: {outcome}")
    else:
        output.say(f"no schedule in {session.settings.display} is to be changed: each is {outcome}")


def _upcoming(schedule: "Schedule", each: datetime) -> str:
    """The time of a fire, in UTC and in the schedule's time zone."""
    local = schedule.recurrence.local(each)
    return moment(each) + (f"  {local}" if local else "")


def _print_detail(session: Session, detail: "ScheduleDetail") -> None:
    output = session.output
    out = output.out
    schedule = detail.schedule
    queue = f", at most {schedule.keep} wait" if schedule.overlap == "queue" else ""
    output.pairs(
        [
            ("schedule", out.paint(safe(schedule.name), "bold")),
            ("when", safe(schedule.recurrence.words())),
            ("active", "yes" if schedule.active else "no"),
            ("catch-up", str(schedule.catch_up)),
            ("overlap", f"{schedule.overlap}{queue}"),
            ("tasks", f"{schedule.tasks:,}"),
            ("created", moment(schedule.created)),
            ("changed", moment(schedule.updated) + (f" by {safe(schedule.by)}" if schedule.by else "")),
            ("fired", f"{schedule.fired:,}" + (f", {schedule.skipped:,} left out" if schedule.skipped else "")),
            ("waiting", ", ".join(map(moment, schedule.waiting))),
            ("next", _upcoming(schedule, detail.upcoming[0]) if detail.upcoming else ""),
        ]
    )
    for each in detail.upcoming[1:]:
        out.line(f"{'':10}{_upcoming(schedule, each)}")
    if detail.runs:
        columns = [
            Column("FOR", lambda each: "by hand" if each.run.manual else moment(each.run.due)),
            Column("STATE", lambda each: each.state, state=True),
            Column("GRAPH", lambda each: each.run.graph_id),
            Column("LATE", lambda each: _late(each.run), number=True),
        ]
        out.line()
        output.table(detail.runs, columns)
    for trouble in detail.troubles:
        output.warn(trouble.text)
        if trouble.remedy:
            output.hint(f"         {trouble.remedy}")


def _late(run: "Run") -> str:
    return "" if run.manual else seconds((run.fired - run.due).total_seconds())
