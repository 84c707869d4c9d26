"""Signals for commands: the first stops in order, the second at once; what then takes too long is cut short."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, T, hint_at_handlers, with_hint
from taskgraph.interfaces.cli.options import ApplyOption, PlanOption, ReasonOption, TimeoutOption, WaitOption
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.model.flag import Flag


_HANGUP: Final = getattr(signal, "SIGHUP", None)  # POSIX alone has it
_STOPPING: Final = tuple(each for each in (signal.SIGINT, signal.SIGTERM, _HANGUP) if each is not None)


_OUTPUTS: Final = (1, 2)
_HAND_BACK_SECONDS: Final = 5.0  # beyond the grace of commands: for what is then handed back, and for the store
_LEAVE_SECONDS: Final = 2.0  # of these, to leave after everything was cancelled


@dataclass(slots=True)
class Stop:
    """The first signal (`_STOPPING`) sets `event`, the second cancels everything, the third ends the process."""

    event: "Flag"
    signals: int = 0


def _leave(terminals: Sequence[int]) -> None:
    """Let what is written to a terminal that is gone go nowhere: it would fail."""
    for each in terminals:
        if not os.isatty(each):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, each)
            os.close(nowhere)


def _end_within(seconds: float) -> None:
    """End the process after so long, whatever its storage, its event loop and its threads wait for."""
    import threading

    def end() -> None:
        os.write(2, b"ended before all was handed back: the store did not answer in time; leases bring it back\n")
        os._exit(failures.INTERRUPTED)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


@contextlib.asynccontextmanager
async def minding_signals(
    on_signal: Callable[[int], None] = lambda _: None, grace_seconds: float | None = None
) -> AsyncIterator[Stop]:
    """Until the end of the body, signals stop it gracefully: SIGINT, SIGTERM, and SIGHUP of a terminal that is closed.

    on_signal: called with their number so far. grace_seconds: that what it has started may take to end; the process is
    gone a few seconds later, whatever it waits for. None: it may take its time.
    """
    import asyncio

    from taskgraph.model.flag import Flag

    loop = asyncio.get_running_loop()
    body = asyncio.current_task()
    stop = Stop(Flag())
    terminals = [each for each in _OUTPUTS if os.isatty(each)]
    late = over = False

    def cut_short() -> None:
        nonlocal late
        if body is not None and not over:
            late = True
            body.cancel()

    def caught(number: int) -> None:
        if number == _HANGUP:
            _leave(terminals)
        if number == _HANGUP and stop.signals:
            return  # a closed terminal sends several: by its shell, and by the system
        stop.signals += 1
        if stop.signals == 1:
            stop.event.set()
            if grace_seconds is not None and body is not None:
                seconds = grace_seconds + _HAND_BACK_SECONDS
                _end_within(seconds)
                loop.call_later(seconds - _LEAVE_SECONDS, cut_short)
        elif stop.signals == 2 and body is not None:
            body.cancel()
        else:
            os._exit(failures.INTERRUPTED)
        on_signal(stop.signals)

    def arrived(number: int, _: object) -> None:
        loop.call_soon_threadsafe(caught, number)

    # Under `nohup` a terminal that is closed ends nothing.
    minded = [each for each in _STOPPING if each != _HANGUP or signal.getsignal(each) is not signal.SIG_IGN]
    # Not by the loop's own handlers, each of which looks through all signals that there are.
    before = {number: signal.signal(number, arrived) for number in minded}
    try:
        yield stop
    except asyncio.CancelledError:
        if stop.signals < 2 and not late:
            raise
        raise failures.Interrupted("ended at once; what was running comes back when its lease has ended") from None
    finally:
        over = True
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


async def unless_stopped(stop: Stop, work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine gives. Raises Interrupted, with the coroutine cancelled, if a signal comes first."""
    import asyncio

    task = asyncio.current_task()
    if stop.event.is_set() or task is None:
        work.close()
        raise failures.Interrupted("interrupted")
    with stop.event.calling(task.cancel):
        try:
            return await work
        except asyncio.CancelledError:
            if not stop.event.is_set() or task.cancelling() > 1:
                raise
            task.uncancel()
            raise failures.Interrupted("interrupted") from None


async def until_settled(
    app: "App",
    session: Session,
    settled: Callable[..., Coroutine[Any, Any, bool]],
    asked: Any,
    seconds: float | None,
    late: str,
) -> None:
    """Wait for what was asked for, with a hint at handlers where that takes long. Raises TimedOut, Interrupted.

    settled: of the operation; False when time is up. asked: what its `ask` returned. late: what is not so then.
    """
    from taskgraph.interfaces.operations.waiting import ends

    over = settled(app, asked, until=ends(app.clock, seconds))
    async with minding_signals() as stop:
        if not await unless_stopped(stop, with_hint(over, lambda: hint_at_handlers(app, session, asked.graph_id))):
            raise failures.TimedOut(f"graph {asked.graph_id}: {late} after {seconds:g} s")


@dataclass(frozen=True)
class RequestOptions:
    """Options of commands that ask for a change of a graph that runs."""

    reason: ReasonOption = ""
    wait: WaitOption = False
    timeout: TimeoutOption = None
    plan: PlanOption = False
    apply: ApplyOption = None

    def __post_init__(self) -> None:
        if self.plan and (self.wait or self.apply):
            raise InvalidInput("--plan writes nothing: leave --wait and --apply out")
        if self.timeout is not None and not (self.wait or self.apply):
            raise InvalidInput("--timeout goes with --wait or --apply")

    def check_graph(self) -> None:
        """Raises InvalidInput for what is planned for graphs alone."""
        if self.plan or self.apply:
            raise InvalidInput("--plan and --apply are for changes of a graph, and not of a target")

    async def planned(self, app: "App", session: Session, graph_id: str, change: Mapping[str, Any]) -> bool:
        """With --plan show what a change would do, with --apply make it so. Whether it was one of these."""
        if not (self.plan or self.apply):
            return False
        from taskgraph.interfaces.cli import planned  # here: most changes are asked for without a plan

        asked = {**change, "reason": self.reason}
        return await planned.instead(
            app, session, graph_id, asked, plan=self.plan, digest=self.apply, patience=self.timeout
        )

    async def answered(
        self, app: "App", session: Session, settled: Callable[..., Coroutine[Any, Any, bool]], asked: Any, late: str
    ) -> bool:
        """Wait, with --wait (see `until_settled`), and print the answer, with --json. Whether it was printed."""
        if self.wait:
            await until_settled(app, session, settled, asked, self.timeout, late)
        return session.answered(asked.answer, settled=self.wait)
