"""One run of a command, from its begin to its end.

What is usual needs no coroutine: the command begins, prints nothing, ends with 0 and leaves no result. A run that was
begun `plainly` is seen through by plain calls as long as that holds, for a task of asyncio costs as much as all of
these. All else is seen to by `go_on`, from wherever the run is by then.
"""

import asyncio
import errno
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from taskgraph.model.errors import InvalidInput
from taskgraph.model.timing import temporary_exit_codes
from taskgraph.worker.executors.children import Child, NotBegun
from taskgraph.worker.executors.contract import (
    AT_ONCE,
    OnEnd,
    Outcome,
    Work,
    WriteLog,
    failed,
    failed_for_now,
    retry_after_in,
)
from taskgraph.worker.executors.output import NOTHING, Output, copied
from taskgraph.worker.executors.results import ResultFiles
from taskgraph.worker.executors.starter import OURS, SOON_SECONDS

_POLL_SECONDS: Final = 0.05


@dataclass(eq=False, slots=True)
class Shared:
    """What all runs of an executor have in common. apart: commands that were not started by starters.

    queued: runs that are with these and are not known to have begun, by their claims.
    """

    grace_seconds: float
    drain_seconds: float
    results: ResultFiles = field(default_factory=ResultFiles)
    apart: int = 0
    queued: "dict[str, CommandRun]" = field(default_factory=dict)


def _nothing() -> None:
    """Of a run that waits for no news."""


def _no_end(outcome: Outcome | None) -> None:
    """Of a run that is not seen through by plain calls."""


class CommandRun:
    """Made before its command is started: `has_begun` is to be called with what comes of that.

    drop: keeps it from being started if it has not begun.
    """

    __slots__ = (
        "_abandoned",
        "_child",
        "_error",
        "_first",
        "_is_over",
        "_look_later",
        "_news",
        "_on_begin",
        "_on_end",
        "_on_news",
        "_output",
        "_place",
        "_result_file",
        "_shared",
        "_timeout_seconds",
        "_work",
        "drop",
    )

    def __init__(
        self,
        shared: Shared,
        work: Work,
        place: tuple[str, str | None],
        result_file: str,
        timeout_seconds: float | None,
        on_begin: Callable[[], None],
    ) -> None:
        """place: the program, and the folder."""
        self._shared = shared
        self._work = work
        self._place = place
        self._result_file = result_file
        self._timeout_seconds = timeout_seconds
        self._on_begin = on_begin
        self.drop: Callable[[], None] = _nothing
        self._child: Child | None = None
        self._output = NOTHING  # until it has begun
        self._is_over = False
        self._error: BaseException | None = None
        self._abandoned = False
        self._first = b""  # that it has printed
        self._on_news: Callable[[], None] = _nothing
        self._on_end: OnEnd = _no_end
        self._news: asyncio.Event | None = None
        self._look_later: asyncio.TimerHandle | None = None

    def has_begun(self, found: Child | BaseException, output: Output) -> None:
        """The process and what it prints, or why there is none."""
        self._shared.queued.pop(self._work.claim, None)
        self._output = output
        if isinstance(found, Child):
            self._child = found
            self._shared.apart += found.own
            found.on_end = self._call
            on_begin, self._on_begin = self._on_begin, _nothing
            on_begin()
            if self._abandoned:
                self._close(found)
                output.close()
        else:
            self._error = found
        self._on_news()

    def _call(self) -> None:
        """There are news: its begin, its end, output, or the end of its time."""
        self._on_news()

    def _close(self, child: Child) -> None:
        child.close()
        child.on_end = _nothing  # or the two would hold each other until garbage is looked for, which is seldom
        self._shared.apart -= child.own

    # --- the usual

    def plainly(self, on_end: OnEnd) -> None:
        """See it through by plain calls. on_end: called with its outcome, once this has returned.

        With None where something is unusual: then `go_on` is to be called at once.
        """
        self._on_news, self._on_end = self._look, on_end
        loop = asyncio.get_running_loop()
        if self._error is not None:
            loop.call_soon(self._call)
        elif self._child is not None:  # most have ended by then
            self._look_later = loop.call_later(SOON_SECONDS, self._call)

    def _look(self) -> None:
        child, output = self._child, self._output
        first = None if child is None else output.take()
        if child is None or first:
            self._first = first or b""
            self._conclude(None)
        elif not child.has_ended:
            if not output.at_end:
                output.watch(self._call)
        elif not output.at_end:  # something else holds it
            self._conclude(None)
        else:
            self._close(child)
            output.close()
            self._is_over = True
            try:
                good = child.reap() == 0 and self._shared.results.is_absent(self._result_file)
            except OSError:  # its code is lost, as it says again when this goes on
                good = False
            self._conclude(Outcome(failed=False, exit_code=0) if good else None)

    def _conclude(self, outcome: Outcome | None) -> None:
        self._no_look_later()
        on_end, self._on_end = self._on_end, _no_end  # which holds what has begun this
        self._on_news = _nothing
        on_end(outcome)

    def _no_look_later(self) -> None:
        if self._look_later is not None:
            self._look_later.cancel()
            self._look_later = None

    # --- all else

    def go_on(self, write_log: WriteLog) -> Coroutine[Any, Any, Outcome]:
        """See it through from where it is. What this gives has to be awaited."""
        self._no_look_later()
        self._news = asyncio.Event()
        self._on_news, self._on_end = self._news.set, _no_end
        return self._go_on(write_log)

    async def _go_on(self, write_log: WriteLog) -> Outcome:
        try:
            if self._is_over and self._child is not None:
                return await self._outcome(self._child.reap())
            try:
                try:
                    child = await self._begun(write_log)
                except OSError as error:
                    if error.errno in OURS:
                        raise
                    return failed(_why_not_started(*self._place, error))
                try:
                    timed_out = await self._attend(child, write_log)
                finally:
                    self._close(child)
            finally:
                self._output.close()
            if timed_out:
                return failed(f"timed out after {self._timeout_seconds:g} s")
            return await self._outcome(child.reap())
        finally:
            self._shared.results.discard(self._result_file)

    async def _begun(self, write_log: WriteLog) -> Child:
        """The process, once it is there. Cancelled half-way, nothing stays behind. Raises OSError."""
        try:
            await self._begin_or_error()
        except asyncio.CancelledError:
            self.drop()
            try:
                await self._begin_or_error()
            except asyncio.CancelledError:
                self._abandon()
                raise
            child = self._child
            if child is None:  # it never began, and nothing waits for the reason any more
                raise
            if child.has_ended and (task := asyncio.current_task()) is not None:
                task.uncancel()  # it has an outcome, which is only on its way
                return child
            try:
                await self._give_up(child, asyncio.create_task(copied(b"", self._output, write_log)))
            finally:
                self._close(child)
            raise
        if isinstance(self._error, NotBegun):
            raise asyncio.CancelledError from self._error
        if self._child is None:
            raise self._error or RuntimeError("a command has neither begun nor failed to")
        return self._child

    def _abandon(self) -> None:
        """If it has begun, or begins after all, it is killed: nothing waits for it any longer."""
        self._abandoned = True
        if self._child is not None:
            self._close(self._child)

    async def _begin_or_error(self) -> None:
        while self._child is None and self._error is None:
            await self._next_news()

    async def _next_news(self) -> None:
        if self._news is None:
            raise RuntimeError("a command is waited for that is seen through by plain calls")
        await self._news.wait()
        self._news.clear()

    async def _attend(self, child: Child, write_log: WriteLog) -> bool:
        """Wait until the run is over and nothing is left of it but zombies; gives whether it timed out.

        A command without output, as most are, needs no task beside this one.
        """
        output, expired = self._output, False

        def expire() -> None:
            nonlocal expired
            expired = True
            self._call()

        def copy(first: bytes) -> "asyncio.Task[None]":
            output.unwatch()
            copying = asyncio.create_task(copied(first, output, write_log))
            copying.add_done_callback(lambda _: self._call())
            return copying

        copying: asyncio.Task[None] | None = None
        seconds = self._timeout_seconds
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, expire)
        child.guard()
        try:
            while True:
                over = child.has_ended  # first: what it wrote before is in the pipe by now
                if copying is None and (first := self._first or output.take()):
                    copying = copy(first)
                if copying is not None and copying.done():
                    copying.result()
                if over or expired:
                    break
                if copying is None and not output.at_end:
                    output.watch(self._call)
                await self._next_news()
            if copying is None and not output.at_end:
                copying = copy(b"")
            if not over:
                await self._end(child)
            if copying is not None:
                await asyncio.wait({copying}, timeout=self._shared.drain_seconds)
            child.signal_group(signal.SIGKILL)
            output.stop()
            if copying is not None:
                await copying
        except BaseException as error:  # a cancellation, or a log that failed
            at_once = isinstance(error, asyncio.CancelledError) and AT_ONCE in error.args
            await self._give_up(child, copying or copy(b""), at_once=at_once)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return not over

    async def _give_up(self, child: Child, copying: "asyncio.Task[None]", *, at_once: bool = False) -> None:
        """End a run whose outcome nothing waits for, and still log its output."""
        try:
            if not child.has_ended and not at_once:
                await self._end(child)
        finally:
            child.signal_group(signal.SIGKILL)
            self._output.stop()
            try:
                await asyncio.wait({copying}, timeout=self._shared.drain_seconds)
            finally:
                copying.cancel()
                await asyncio.gather(copying, return_exceptions=True)

    async def _end(self, child: Child) -> None:
        """Ask the group to end, and kill what is left of it when the grace is over or the waiting is cut short."""
        try:
            child.signal_group(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._shared.grace_seconds):
                    await child.wait()
                    child.reap()  # a zombie would look like something left
                    while child.signal_group(0):  # noqa: ASYNC110 - nothing shows when a group is empty
                        await asyncio.sleep(_POLL_SECONDS)
        finally:
            child.signal_group(signal.SIGKILL)
        await child.wait()

    async def _outcome(self, code: int) -> Outcome:
        if code < 0:
            return failed(f"killed by {_signal_name(-code)}")
        if code in temporary_exit_codes(self._work.definition):
            retry_after = await self._retry_after()
            return failed_for_now(f"exit code {code}", exit_code=code, retry_after=retry_after)
        if code > 0:
            return failed(f"exit code {code}", exit_code=code)
        try:
            result = await self._shared.results.take(self._result_file)
        except InvalidInput as error:
            return failed(str(error), exit_code=0)
        return Outcome(failed=False, exit_code=0, result=result)

    async def _retry_after(self) -> object:
        """The pause in seconds that a command that failed for the moment asks for; None if it does not."""
        try:
            result = await self._shared.results.take(self._result_file)
        except InvalidInput:
            return None  # half a result is no reason to fail for good
        return retry_after_in(result)


def _why_not_started(program: str, cwd: str | None, error: OSError) -> str:
    if cwd is not None:
        if not Path(cwd).exists():
            return f"the working directory {cwd} does not exist"
        if not Path(cwd).is_dir():
            return f"the working directory {cwd} is no directory"
        if error.filename == cwd != program:
            return f"the working directory {cwd} cannot be entered: {error.strerror}"
    match error.errno:
        case errno.ENOENT if "/" not in program:
            return f"the command {program} was not found on PATH"
        case errno.ENOENT if Path(cwd or "", program).exists():
            return f"the command {program} names an interpreter that does not exist"
        case errno.ENOENT:
            return f"the command {program} does not exist"
        case errno.EACCES:
            return f"the command {program} is not executable"
        case _:
            return f"the command {program} cannot be started: {error.strerror}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
