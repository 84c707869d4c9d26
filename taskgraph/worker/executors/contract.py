"""What a worker hands to an executor, what it gets back, and what executors promise."""

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import field
from typing import Any, Final, Protocol

from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.ids import value

RESULT_BYTES_MAX: Final = 1 << 20
"""Of a result's JSON text; a larger one belongs into a store of the task's own, and its address here."""

AT_ONCE: Final = "at once"
"""Message of a cancellation (`asyncio.Task.cancel`) that leaves no grace: what was started is killed."""

WriteLog = Callable[[bytes], Awaitable[None]]
"""Adds bytes to the log of a run. A lost log fails no task: what this raises all the same ends the run and goes on to
the caller of `run`."""


async def no_log(data: bytes) -> None:
    """Takes no log: of runs that say nothing."""


def _nothing() -> None:
    """Of a run whose begin is of no interest."""


@value
class Work:
    """One run of a task, as an executor gets it.

    run: from 0. claim: the fencing token, unique for each claim, by which an outside system knows this run from one
    that lost its lease. definition: the very same one for all tasks with the same text, so it is not to be changed.
    store_url: may be "", and `settings.WITHHELD` where the store needs a key and the worker hands on none. traceparent:
    of the run's trace, in W3C form; "" unless telemetry is on. folder: where a command starts, and a relative `cwd`
    begins; "" for the worker's own. files: the folder of the copies of files that it takes, "" if it takes none.
    on_begin: called by an executor with a queue when the run begins.
    """

    graph_id: str
    task_id: str
    run: int
    label: str
    claim: str
    definition: Mapping[str, Any]
    store_url: str = ""
    traceparent: str = ""
    folder: str = ""
    files: str = ""
    on_begin: Callable[[], None] = _nothing


@value
class Outcome:
    """How a run ended.

    reason: one sentence, at most limits.REASON_CHARS_MAX characters, "" for a success. exit_code: of a command that
    ended by itself. exception: the run never got to an answer (a malformed payload), so no rerun is spent. result: JSON
    text in UTF-8, at most RESULT_BYTES_MAX. temporary: it is tried again later, after retry_after seconds if that is
    not None. code: a stable word for the reason, where there is one. more: what else the resolution says, of files and
    of the cache. adds: an extension of the graph, as a document, that must be accepted before the run has completed.
    """

    failed: bool
    reason: str = ""
    exit_code: int | None = None
    exception: bool = False
    result: bytes | None = None
    temporary: bool = False
    retry_after: float | None = None
    code: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    adds: Mapping[str, Any] = field(default_factory=dict)


class TemporaryFailure(Exception):
    """Raised by a task's callable: it cannot do its work now, and may be able to later.

    The task is tried again after `retry_after` seconds (604,800, a week, at most), or after a pause that grows with
    each such failure. That spends no rerun, as long as the task's budget of temporary failures lasts.
    """

    def __init__(self, reason: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


OnEnd = Callable[[Outcome | None], None]
"""Called with the outcome of a run that was begun by plain calls; with None if it has to `go_on` by a coroutine."""


class Begun(Protocol):
    """A run that was begun by plain calls, see `Queue.begin`."""

    def go_on(self, write_log: WriteLog) -> Coroutine[Any, Any, Outcome]:
        """See it through from where it is, as `Executor.run` does. `on_end` is not called any more."""


class Queue(Protocol):
    """More runs than there are slots may be given to an executor that has one: it begins them in order."""

    def begin(self, work: Work, on_begin: Callable[[], None], on_end: OnEnd) -> Begun | None:
        """Begin a run, or have it wait for its turn; None if it can only be had by `Executor.run`.

        As long as nothing unusual happens, a short run needs no coroutine then. on_end: called once, by the event loop.
        Raises OSError when this machine is out of processes, memory or disk.
        """

    def is_ready(self, slots: int) -> bool:
        """Whether it does so now, as many at a time as there are slots. It may take a moment after it was asked."""

    def recall(self, work: Work) -> None:
        """Have a run that has not begun end as if it was cancelled; one that has goes on."""


class Executor(Protocol):
    """A class that names this one among its bases has what it leaves out: it takes time, and can run any task."""

    @property
    def name(self) -> str:
        """What a definition calls it, under "executor"."""

    @property
    def instant(self) -> bool:
        """Whether a run takes no time and writes no log: many are claimed and reported together."""

    @property
    def queue(self) -> Queue | None:
        """What has runs wait for a slot, if this executor has such a thing."""

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        """None if this worker is able to run the task; else the reason why it is not, one sentence.

        Asked before the task is claimed. A malformed payload is no reason: its run says what is wrong.
        """

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        """Run it to its end. Whatever the task does wrong is an outcome.

        When cancelled it ends what it started, without a grace if the cancellation says AT_ONCE, and the cancellation
        goes on. Raises OSError when this machine is out of processes, memory or disk.
        """


def failed(reason: str, *, exit_code: int | None = None) -> Outcome:
    return Outcome(failed=True, reason=one_line(reason), exit_code=exit_code)


def failed_for_now(reason: str, *, exit_code: int | None = None, retry_after: object = None) -> Outcome:
    """retry_after: seconds, as the task gives them, cut to a week; what is no number from 0 on counts as None."""
    seconds: float | None = None
    if isinstance(retry_after, int | float) and not isinstance(retry_after, bool) and retry_after >= 0:
        seconds = float(min(retry_after, limits.DELAY_SECONDS_MAX))
        if retry_after > limits.DELAY_SECONDS_MAX:
            reason = f"{reason or 'for the moment'} (it asked for a longer pause than a week, and gets a week)"
    return Outcome(failed=True, reason=one_line(reason), exit_code=exit_code, temporary=True, retry_after=seconds)


def retry_after_in(result: bytes | None) -> object:
    """The pause in seconds that a task that failed for the moment asks for in its result; None if it does not."""
    found = json.loads(result) if result is not None else None
    return found.get("retryAfter") if isinstance(found, dict) else None


def malformed(reason: str) -> Outcome:
    return Outcome(failed=True, reason=one_line(reason), exception=True)


def one_line(text: str) -> str:
    """A text as a reason: white space folded, encodable in UTF-8, cut at limits.REASON_CHARS_MAX."""
    line = " ".join(text.split()).encode("utf-8", "replace").decode("utf-8")
    return line if len(line) <= limits.REASON_CHARS_MAX else line[: limits.REASON_CHARS_MAX - 1] + "…"


def payload_of(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    payload = definition.get("payload")
    if payload is None:
        return {}
    if not isinstance(payload, Mapping):
        raise InvalidInput("payload must be an object")
    return payload


def checked_result(data: bytes) -> bytes:
    """The same, if it is the JSON text of a result. Raises InvalidInput with the reason why it is none."""
    if len(data) > RESULT_BYTES_MAX:
        raise InvalidInput(
            f"the result is longer than {RESULT_BYTES_MAX:,} bytes; store it elsewhere and give its address"
        )
    try:
        json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InvalidInput("the result is nested too deeply") from error
    except ValueError as error:
        raise InvalidInput(f"the result is not JSON: {error}") from error
    return data


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")
