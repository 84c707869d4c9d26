"""How far a graph is, from its journal, and how that is shown: a live picture, lines now and then, or JSON lines.

Events are added up as they come; the rows of the tasks are never read.
"""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.output import Output, Stream, count, fitted, safe, seconds, seconds_at_this_pace, short
from taskgraph.model.columns import texts
from taskgraph.model.errors import StorageUnavailable
from taskgraph.model.states import WHOLE, GraphState, TaskState, state_in_words

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.cli.prefixed import Echo
    from taskgraph.model.clock import Clock
    from taskgraph.queries.values import Event
    from taskgraph.worker.executors import Executor, Outcome, Work, WriteLog
    from taskgraph.worker.executors.contract import Begun, OnEnd, Queue

_POLL_SECONDS_MIN: Final = 0.5
_POLL_SECONDS_MAX: Final = 5.0
_POLL_SHARE: Final = 20  # reading the journal takes at most one part in so many of the time
_DRAW_SECONDS: Final = 0.2
_LINE_SECONDS: Final = 1.0
_RUNNING_SHOWN_MAX: Final = 8
_FAILURE_KINDS: Final = ("task-failed", "task-exception")
_NOTICES_MAX: Final = 100  # failures printed one by one; the rest is counted
_ENDS: Final[Mapping[str, str]] = {
    "task-completed": TaskState.COMPLETED,
    "task-failed": TaskState.FAILED,
    "task-exception": TaskState.EXCEPTION,
    "task-skipped": TaskState.SKIPPED,
    "task-cancelled": TaskState.CANCELLED,
}
"""Events by which a task is at its end -> the state whose symbol they have."""
_ENDS_MAX: Final = 1_000  # ends of tasks printed one by one
_COUNTED: Final = (TaskState.RUNNING, TaskState.FAILED, TaskState.EXCEPTION, TaskState.SKIPPED, TaskState.CANCELLED)


# --- adding up -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that has failed for good, and has not been rerun since. state: failed or exception."""

    label: str
    task_id: str
    run: int
    state: str
    reason: str


@dataclass(slots=True)
class Tally:
    """The sum of the journal of one graph. sequence: of the last event row in it. held: as on the graph's row."""

    graph_id: str
    sequence: int = 0
    state: str = ""
    tasks: int = 0
    completed: int = 0
    skipped: int = 0
    reruns: int = 0
    retries: int = 0
    hand_backs: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    held: tuple[str, ...] = ()

    def take(self, events: "Iterable[Event]") -> None:
        """Add events, in order and each once."""
        for event in events:
            self.sequence = event.sequence
            task_id = str(event.fields.get("task", ""))
            match event.kind:
                case "task-completed":
                    self.completed += 1
                case "task-skipped":
                    self.skipped += 1
                case "task-failed" | "task-exception":
                    self.failures[task_id] = failure_of(event)
                case "task-cancelled":
                    self.cancelled.add(task_id)
                case "task-retry":
                    self.retries += 1
                case "task-rerun":
                    self.failures.pop(task_id, None)
                    self.cancelled.discard(task_id)
                    was = event.fields.get("was")  # it ran, or was skipped, and that is taken back
                    self.completed -= was == TaskState.COMPLETED
                    self.skipped -= was == TaskState.SKIPPED
                    match event.fields.get("because"):
                        case "lost":
                            self.retries += 1
                        case "handed-back":  # spends no retry
                            self.hand_backs += 1
                        case _:
                            self.reruns += 1
                case _:
                    pass  # what happens to the graph stands on its row

    def failed(self, state: TaskState) -> int:
        """The number of tasks in this state, failed or exception."""
        return sum(failure.state == state for failure in self.failures.values())

    def counts(self, running: int | None = None) -> dict[str, int]:
        """Tasks by state; what is not in the journal waits."""
        made = {
            "completed": self.completed,
            "failed": self.failed(TaskState.FAILED),
            "exception": self.failed(TaskState.EXCEPTION),
        }
        if self.skipped:
            made["skipped"] = self.skipped
        if self.cancelled:
            made["cancelled"] = len(self.cancelled)
        if running is not None:
            made["running"] = running
        made["waiting"] = max(0, self.tasks - sum(made.values()))
        return made


def failure_of(event: "Event") -> Failure:
    fields = event.fields
    run = fields.get("run", 0)
    return Failure(
        label=str(fields.get("label", "")),
        task_id=str(fields.get("task", "")),
        run=run if isinstance(run, int) else 0,
        state=event.kind.removeprefix("task-"),
        reason=str(fields.get("reason", "")),
    )


@dataclass(frozen=True, slots=True)
class Running:
    """A task that runs now. began: of Clock.monotonic."""

    label: str
    began: float


@dataclass(frozen=True, slots=True)
class Here:
    """What of one graph runs in this process. others: number of tasks of other graphs."""

    running: Sequence[Running] = ()
    others: int = 0


@dataclass(slots=True)
class Board:
    """What runs in this process now, by (graph, task, run), of all graphs.

    took: (task, run) -> seconds, of the first runs that have ended here, until it is taken out. echo: prints what runs
    print.
    """

    clock: "Clock"
    running: dict[tuple[str, str, int], Running] = field(default_factory=dict)
    took: dict[tuple[str, int], float] = field(default_factory=dict)
    echo: "Echo | None" = None

    def of(self, graph_id: str) -> "Here":
        own = [one for (graph, _, _), one in self.running.items() if graph == graph_id]
        return Here(own, len(self.running) - len(own))

    def note_end(self, key: tuple[str, str, int]) -> None:
        """One that was recalled has never begun."""
        one = self.running.pop(key, None)
        if one is not None and len(self.took) < 2 * _ENDS_MAX:  # some may be run again before they are at their end
            self.took[key[1:]] = self.clock.monotonic() - one.began

    def watched(self, executor: "Executor") -> "Executor":
        """The same executor, with its runs on this board; one whose runs take no time is left as it is."""
        return executor if executor.instant else _Watched(executor, self)


class _Watched:
    """An executor whose runs stand on a board. It is the queue of its runs, too, if it has one."""

    def __init__(self, inner: "Executor", board: Board) -> None:
        self._inner = inner
        self._board = board

    @property
    def name(self) -> str:
        return self._inner.name

    instant = False

    @property
    def queue(self) -> "Queue | None":
        return None if self._inner.queue is None else self

    def is_ready(self, slots: int) -> bool:
        return self._queue().is_ready(slots)

    def recall(self, work: "Work") -> None:
        self._queue().recall(work)

    def _queue(self) -> "Queue":
        if self._inner.queue is None:
            raise RuntimeError(f"the executor {self.name} has no queue")
        return self._inner.queue

    def begin(self, work: "Work", on_begin: "Callable[[], None]", on_end: "OnEnd") -> "Begun | None":
        key = (work.graph_id, work.task_id, work.run)

        def note_begin() -> None:
            self._board.running[key] = Running(work.label, self._board.clock.monotonic())
            on_begin()

        def note_end(outcome: "Outcome | None") -> None:
            if outcome is not None:
                self._note_end(work)
            on_end(outcome)

        begun = self._queue().begin(work, note_begin, note_end)
        return None if begun is None else _WatchedRun(self, work, begun)

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return self._inner.can_run(definition)

    async def run(self, work: "Work", write_log: "WriteLog") -> "Outcome":
        key = (work.graph_id, work.task_id, work.run)

        def begin() -> None:
            self._board.running[key] = Running(work.label, self._board.clock.monotonic())

        if self._inner.queue is None:
            begin()
        else:
            work = dataclasses.replace(work, on_begin=begin)
        return await self.to_its_end(work, self._inner.run(work, self.echoing(work, write_log)))

    def echoing(self, work: "Work", write_log: "WriteLog") -> "WriteLog":
        return write_log if self._board.echo is None else self._board.echo.around(work, write_log)

    async def to_its_end(self, work: "Work", run: "Awaitable[Outcome]") -> "Outcome":
        try:
            return await run
        finally:
            self._note_end(work)

    def _note_end(self, work: "Work") -> None:
        self._board.note_end((work.graph_id, work.task_id, work.run))
        if self._board.echo is not None:
            self._board.echo.end(work)


class _WatchedRun:
    def __init__(self, watched: _Watched, work: "Work", begun: "Begun") -> None:
        self._watched = watched
        self._work = work
        self._begun = begun

    def go_on(self, write_log: "WriteLog") -> "Coroutine[Any, Any, Outcome]":
        echoing = self._watched.echoing(self._work, write_log)
        return self._watched.to_its_end(self._work, self._begun.go_on(echoing))


# --- showing ---------------------------------------------------------------------------------------------------


class _Failures:
    """Prints failures as they come."""

    def __init__(self, output: Output) -> None:
        self._err = output.err
        self._number = 0

    def events(self, events: "Sequence[Event]") -> None:
        for event in events:
            if event.kind not in _FAILURE_KINDS:
                continue
            self._number += 1
            if self._number > _NOTICES_MAX:
                continue
            self._err.line(self._words(event))
            if self._number == _NOTICES_MAX:
                self._err.line("further failures are counted, and not listed here")

    def _words(self, event: "Event") -> str:
        failure = failure_of(event)
        reason = f": {safe(failure.reason)}" if failure.reason else ""
        return f"{self._err.state(failure.state)}  {safe(failure.label)} (run {failure.run}){reason}"


def counts_line(stream: Stream, tally: Tally, here: Here | None = None) -> str:
    """`12/58 completed, 3 running, 1 failed, 42 waiting`."""
    counts = tally.counts(None if here is None else len(here.running))
    parts = [f"{tally.completed:,}/{tally.tasks:,} completed"]
    parts += [f"{stream.symbol(state)} {counts[state]:,} {state}" for state in _COUNTED if counts.get(state)]
    if counts["waiting"]:
        parts.append(f"{counts['waiting']:,} waiting")
    if tally.held:
        parts.append("paused" if not WHOLE.isdisjoint(tally.held) else f"{count(len(tally.held), 'group')} paused")
    if here is not None and here.others:
        parts.append(f"and {count(here.others, 'task')} of other graphs running here")
    return ", ".join(parts)


class PlainDisplay(_Failures):
    """A line when something has changed, at most one each second; every failure at once."""

    def __init__(self, output: Output, clock: "Clock") -> None:
        super().__init__(output)
        self._output = output
        self._clock = clock
        self._began = clock.monotonic()
        self._seen: object = None
        self._last_line = -_LINE_SECONDS
        self._latest: tuple[Tally, Here | None] | None = None

    def draw(self, tally: Tally, here: Here | None) -> None:
        """here: None where it is unknown what runs."""
        self._latest = (tally, here)
        if self._clock.monotonic() - self._last_line >= _LINE_SECONDS:
            self._line()

    def close(self) -> None:
        self._line()
        self._latest = None

    def _line(self) -> None:
        if self._latest is not None and (seen := self._what_counts(*self._latest)) != self._seen:
            self._seen, self._last_line = seen, self._clock.monotonic()
            self._print(*self._latest)

    def _what_counts(self, tally: Tally, here: Here | None) -> object:
        """A change of it is worth a line; what runs is left out, as it changes too often."""
        others = bool(here and here.others)
        return (tally.state, tally.tasks, tally.held, others, *tally.counts().values())

    def _print(self, tally: Tally, here: Here | None) -> None:
        elapsed = self._last_line - self._began
        self._err.line(
            f"{elapsed:6.1f} s  {state_in_words(tally.state, tally.held)}: {counts_line(self._err, tally, here)}"
        )


class EndsDisplay(PlainDisplay):
    """A line for each task at its end, of the first ones; behind them, or when something else changes, counts.

    board: knows how long runs of this process took.
    """

    def __init__(self, output: Output, clock: "Clock", board: Board) -> None:
        super().__init__(output, clock)
        self._took = board.took
        self._ends = 0

    def events(self, events: "Sequence[Event]") -> None:
        ends = [event for event in events if event.kind in _ENDS]
        room = max(0, _ENDS_MAX - self._ends)
        lines = list(map(self._words, ends[:room]))
        if self._ends <= _ENDS_MAX < self._ends + len(ends):
            lines.append("further tasks are counted, and only failures are listed here")
        self._ends += len(ends)
        if lines:
            self._err.line("\n".join(lines))
        super().events(ends[room:])

    def _words(self, event: "Event") -> str:
        read, run = event.fields.get, event.fields.get("run", 0)
        words = f"{self._err.symbol(_ENDS[event.kind])} {safe(str(read('label', '')))}"
        if run:
            words += f" (run {run})"
        if event.kind in ("task-skipped", "task-cancelled"):
            words += f"  {event.kind.removeprefix('task-')}"
        if reason := str(read("reason", "")):
            words += f"  {safe(reason)}"
        if read("cached") is True:
            words += f"  {self._err.paint('from the cache', 'dim')}"
        if self._took and (took := self._took.pop((str(read("task", "")), run), None)) is not None:
            words += f"  {self._err.paint(seconds(took, digits=3), 'dim')}"
        return words

    def _what_counts(self, tally: Tally, here: Here | None) -> object:
        if self._ends > _ENDS_MAX:
            return super()._what_counts(tally, here)
        return (tally.state, tally.tasks, tally.held, bool(here and here.others))


class JsonDisplay(PlainDisplay):
    """The same as JSON lines on stdout, of the types `progress`, `task-failed` and `task-exception`."""

    def events(self, events: "Sequence[Event]") -> None:
        for event in events:
            if event.kind in _FAILURE_KINDS:
                self._output.json_line(views.failure_line(event))

    def _what_counts(self, tally: Tally, here: Here | None) -> dict[str, Any]:
        return views.progress(tally.graph_id, tally.state, tally.tasks, tally.counts(), tally.held)

    def _print(self, tally: Tally, here: Here | None) -> None:
        self._output.json_line(views.at_time(self._what_counts(tally, here), self._clock.now()))


class LiveDisplay(_Failures):
    """A picture at the end of a terminal: bar, counts, what runs; failures stay above it."""

    def __init__(self, output: Output, clock: "Clock") -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(output)
        self._clock = clock
        self._began = clock.monotonic()
        self._done_before: int | None = None  # tasks, when this began to look
        self._console = Console(file=self._err.file, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(self._live)
        self._stack.enter_context(self._err.lines_through(self._print))

    def _print(self, line: str) -> None:
        from rich.text import Text

        self._console.print(Text.from_ansi(line), soft_wrap=True)

    def draw(self, tally: Tally, here: Here | None) -> None:
        from rich.console import Group
        from rich.text import Text

        now = self._clock.monotonic()
        width = max(20, self._console.width - 1)
        elapsed = seconds(now - self._began)
        state = self._err.graph_state(tally.state, failures=bool(tally.failures), held=tally.held)
        head = f"{state}  {safe(tally.graph_id)}  {self._err.paint(elapsed + self._pace_words(tally, now), 'dim')}"
        lines = [head, self._bar(tally, width), f"  {counts_line(self._err, tally, here)}"]
        shown = sorted(here.running if here else (), key=lambda one: one.began)
        for one in shown[:_RUNNING_SHOWN_MAX]:
            length = seconds(max(0.0, now - one.began))
            label = fitted(safe(one.label), max(8, width - len(length) - 7))
            lines.append(f"  {self._err.symbol(TaskState.RUNNING)} {label} {self._err.paint(length, 'dim')}")
        if len(shown) > _RUNNING_SHOWN_MAX:
            lines.append(self._err.paint(f"    … and {len(shown) - _RUNNING_SHOWN_MAX:,} more", "dim"))
        texts = [Text.from_ansi(line, no_wrap=True, overflow="ellipsis") for line in lines]
        self._live.update(Group(*texts), refresh=True)

    def _pace_words(self, tally: Tally, now: float) -> str:
        """How long it goes on at the pace since this began to look, where that can be said."""
        done = tally.completed + tally.skipped + len(tally.failures) + len(tally.cancelled)
        self._done_before = done if self._done_before is None else self._done_before
        if tally.state != GraphState.RUNNING or tally.held:
            return ""
        left = seconds_at_this_pace(done - self._done_before, tally.tasks - done, now - self._began)
        return "" if left is None else f", at this pace {short(left)} more"

    def _bar(self, tally: Tally, width: int) -> str:
        room = min(60, width - 10)
        total = max(1, tally.tasks)
        share = min(1.0, (tally.completed + tally.skipped) / total)
        failed = len(tally.failures)
        done = int(room * share)
        bad = min(room - done, max(1, room * failed // total)) if failed else 0
        full, empty = ("━", "━") if self._err.unicode else ("#", "-")
        bar = self._err.paint(full * done, "green") + self._err.paint(full * bad, "red")
        return f"  {bar}{self._err.paint(empty * (room - done - bad), 'dim')} {int(share * 100):3d} %"

    def close(self) -> None:
        self._stack.close()


Display = PlainDisplay | LiveDisplay


def display_for(output: Output, clock: "Clock", *, json_lines: bool = False, board: Board | None = None) -> Display:
    """json_lines: whether progress is printed as JSON lines, where JSON is wanted. board: for a line for each task."""
    if json_lines and output.json:
        return JsonDisplay(output, clock)
    if board is not None and not output.err.live:
        return EndsDisplay(output, clock, board)
    return LiveDisplay(output, clock) if output.err.live else PlainDisplay(output, clock)


# --- following -------------------------------------------------------------------------------------------------

WhatRuns = Callable[[], Here | None]


class Follower:
    """Keeps a tally up to date, and a display with it."""

    def __init__(
        self, app: "App", graph_id: str, display: Display, what_runs: WhatRuns = lambda: None, *, fresh: bool = False
    ) -> None:
        self.tally = Tally(graph_id)
        self._history = not fresh  # what happened before is counted, and not displayed
        self.extended = False  # since it was reset
        self._app = app
        self._display = display
        self._what_runs = what_runs

    async def poll(self) -> None:
        """Read what is new in the journal. Raises NotFound, StorageUnavailable."""
        tally = self.tally
        # The graph row is read first, so the journal is never behind it.
        row = await self._app.queries.graph_row(tally.graph_id)
        async with contextlib.aclosing(self._app.queries.journal(tally.graph_id, since=tally.sequence)) as rows:
            async for events in rows:
                tally.take(events)
                self.extended |= any(event.kind == "graph-extended" for event in events)
                if not self._history:
                    self._display.events(events)
        self._history = False
        tasks = row.columns.get("tasks", 0)
        tally.tasks = tasks if isinstance(tasks, int) else 0
        tally.state = str(row.columns.get("state", ""))
        tally.held = tuple(texts(row.columns, "held"))

    def draw(self) -> None:
        self._display.draw(self.tally, self._what_runs())

    async def follow(self) -> None:
        """Poll and draw until cancelled."""
        import asyncio

        polling = asyncio.create_task(self._keep_polling())
        try:
            while not polling.done():
                if self.tally.state:
                    self.draw()
                await asyncio.sleep(_DRAW_SECONDS)
            polling.result()
        finally:
            polling.cancel()
            await asyncio.wait((polling,))

    async def _keep_polling(self) -> None:
        clock = self._app.clock
        while True:
            began = clock.monotonic()
            with contextlib.suppress(StorageUnavailable):  # an error of the work beside this
                await self.poll()
            pause = min(max((clock.monotonic() - began) * _POLL_SHARE, _POLL_SECONDS_MIN), _POLL_SECONDS_MAX)
            await clock.sleep(pause)
            await self._app.queries.news.wait(self.tally.graph_id, self.tally.sequence, pause=0)


@contextlib.asynccontextmanager
async def following(
    app: "App", graph_id: str, display: Display, what_runs: WhatRuns = lambda: None, *, fresh: bool = False
) -> AsyncIterator[Follower]:
    """Follow a graph beside the body, and poll once more at its end. fresh: display the first failures, too."""
    import asyncio

    follower = Follower(app, graph_id, display, what_runs, fresh=fresh)
    task: asyncio.Task[None] | None = None

    def begin() -> None:
        nonlocal task
        task = asyncio.create_task(follower.follow())

    # Of one that has just been submitted nothing has happened yet, and most that are small are over by then.
    timer = asyncio.get_running_loop().call_later(_POLL_SECONDS_MIN if fresh else 0.0, begin)

    async def end() -> None:
        timer.cancel()
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    try:
        yield follower
        await end()
        await follower.poll()
        follower.draw()
    finally:
        await end()
        display.close()
    if task is not None and not task.cancelled() and (error := task.exception()) is not None:
        raise error


def submitting(output: Output, clock: "Clock") -> contextlib.AbstractContextManager[Callable[[int, int | None], None]]:
    """Show how many rows of a submission are written."""

    def words(written: int, total: int | None) -> str:
        return f"submitting: {written:,} of {count(total or 0, 'row')} written"

    return counting(output, clock, "submitting", words)


@contextlib.contextmanager
def counting(
    output: Output, clock: "Clock", title: str, words: Callable[[int, int | None], str]
) -> Iterator[Callable[[int, int | None], None]]:
    """Show how far something has come (done, and of how many if that is known), if it takes long enough to be seen.

    A bar with this title on a terminal that can show one; elsewhere a line now and then, made by `words`.
    """
    began = clock.monotonic()
    if output.err.live:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        bar = Progress(
            TextColumn(f"  {title}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=output.err.file, force_terminal=True),
            transient=True,
            auto_refresh=False,
        )
        row = bar.add_task(title, total=None)
        started = False

        def draw(done: int, total: int | None) -> None:
            nonlocal started
            if not started and clock.monotonic() - began > _POLL_SECONDS_MIN:
                started = True
                bar.start()
            if started:
                bar.update(row, completed=done, total=total, refresh=True)

        try:
            yield draw
        finally:
            if started:
                bar.stop()
        return
    last = began

    def say(done: int, total: int | None) -> None:
        nonlocal last
        now = clock.monotonic()
        if now - last >= _LINE_SECONDS:
            last = now
            output.say(f"{now - began:6.1f} s  {words(done, total)}")

    yield say
