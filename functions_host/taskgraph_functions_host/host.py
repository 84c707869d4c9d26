"""A small Functions host: polls queues, minds timers, and calls the functions of an app as Azure's host does.

What this room is for: the host's rules towards queues (how many at a time, locked for ten minutes, deleted on success,
offered again at once on failure, set aside after five), towards timers (never two runs of one at once), and towards the
worker process (started again when it dies). The functions run in that process, under Microsoft's own library. It never
looks into a message, never shows one, and knows nothing of graphs.
"""

import asyncio
import base64
import binascii
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol

from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidSettings, StaleDelivery, StorageError, TooLarge
from taskgraph.model.flag import Flag, wait_any
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph_functions_host.local import HTTP_TRIGGER, Function, HostJson, functions_of
from taskgraph_functions_host.schedule import Schedule
from taskgraph_functions_host.worker_process import Answer, AppFailed, LogLine, WorkerDied, WorkerProcess, typed

__all__ = ["GRACE_SECONDS", "LOCK_SECONDS", "FunctionsHost", "Report", "Source"]

LOCK_SECONDS: Final = 600.0
"""How long a message is hidden while its function runs; renewed at half time. Azure's host has no setting for it."""

GRACE_SECONDS: Final = 30.0
"""How long invocations may take to end once the host is to stop."""

_FIRST_PAUSE_SECONDS: Final = 0.1
_TROUBLE_SECONDS_MAX: Final = 10.0
_RENEW_AGAIN_SECONDS: Final = 5.0
_RESTART_SECONDS: Final = 0.5
_RESTART_SECONDS_MAX: Final = 30.0
_STEADY_SECONDS: Final = 60.0  # a worker that has lived so long starts the pauses anew
_LONG_SECONDS: Final = 3600.0
_NEVER: Final = "0001-01-01T00:00:00+00:00"  # how the host writes a time that was not

Report = Callable[[str, str, Mapping[str, Any]], None]
"""Takes each event: how loud (`debug`, `info`, `warning`, `error`), what, and its particulars."""

Launch = Callable[[Callable[[LogLine], None]], Awaitable[WorkerProcess]]
"""Starts a worker, with a function for its log lines. Raises AppFailed, WorkerDied."""


@dataclass(frozen=True, slots=True)
class Source:
    """The queues of a connection. wakeup: rings when a process of this machine sends; None: found by polling alone."""

    queues: Queues
    wakeup: Wakeup | None


class _Listener(Protocol):
    async def run(self, stop: Flag) -> None: ...


class FunctionsHost:
    """One app, its worker process, and everything that calls its functions.

    open_source: gives the queues of a connection, by the name of its setting. environ: the app's settings. http_port:
    where HTTP triggers are called, 0 for any that is free; None: they are not.
    """

    def __init__(
        self,
        launch: Launch,
        open_source: Callable[[str], Awaitable[Source]],
        environ: Mapping[str, str],
        host_json: HostJson,
        clock: Clock,
        report: Report,
        *,
        lock_seconds: float = LOCK_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        http_port: int | None = None,
    ) -> None:
        self.clock = clock
        self.report = report
        self.host_json = host_json
        self.lock_seconds = lock_seconds
        self.up = Flag()
        self.succeeded = 0
        self.failed = 0
        self._launch = launch
        self._open_source = open_source
        self._environ = environ
        self._grace_seconds = grace_seconds
        self._http_port = http_port
        self._address: str | None = None
        self._worker: WorkerProcess | None = None
        self._ids: Mapping[str, str] = {}
        self._names: dict[str, str] = {}  # of functions, by invocation
        self._in_hand: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[None] | None = None

    async def run(self, stop: Flag) -> None:
        """Run the app until `stop` is set, and let what is in hand come to its end.

        Raises AppFailed when the app cannot be indexed, InvalidSettings for bindings that make no sense or when there
        is nothing to run, StorageUnavailable when a queue does not answer at the beginning.
        """
        try:
            worker = await self._launch(self._log)
        except WorkerDied as died:
            raise AppFailed(f"{died}; what it said stands above") from died
        self._broken = asyncio.get_running_loop().create_future()
        tasks: list[asyncio.Task[None]] = []
        try:
            functions = functions_of(worker.found, self._environ, self.host_json, http=self._http_port is not None)
            listeners = await self._listeners(functions)
            self._take(worker)
            self.report("info", "ready", _ready(functions, worker, self.host_json, self._address))
            runs = [self._mind_worker(worker, stop), *(each.run(stop) for each in listeners)]
            tasks = [asyncio.create_task(each) for each in runs]
            await self._until_over(tasks, stop)
            await self._let_end(tasks)
        finally:
            await self._end(tasks, worker)
        self.report("info", "stopped", {"succeeded": self.succeeded, "failed": self.failed})

    async def call(
        self, function: Function, data: Mapping[str, Any], metadata: Mapping[str, Mapping[str, str]], reason: str
    ) -> Answer:
        """Call a function, and report its end. A worker that dies meanwhile is a failure of the function."""
        invocation = _guid(self.clock.new_id())
        self._names[invocation] = function.name
        about = {"function": function.name, "invocation": invocation}
        self.report("debug", "executing", {**about, "reason": reason})
        began, worker = self.clock.monotonic(), self._worker
        try:
            if worker is None or function.name not in self._ids:
                raise WorkerDied
            async with asyncio.timeout(self.host_json.timeout_seconds):
                answer = await worker.invoke(invocation, self._ids[function.name], function.binding, data, metadata)
        except TimeoutError:
            # Nothing but its end stops a function. Whatever else this worker has in hand goes with it.
            if worker is not None:
                await worker.kill()
            answer = Answer(False, "FunctionTimeout", f"it ran longer than {self.host_json.timeout_seconds:g} s")
        except WorkerDied:
            answer = Answer(False, "WorkerDied", "the worker process has ended in the middle")
        finally:
            del self._names[invocation]
        about["seconds"] = f"{self.clock.monotonic() - began:.3f}"
        if answer.succeeded:
            self.succeeded += 1
            self.report("debug", "executed", {**about, "succeeded": True, "reason": reason})
        else:
            self.failed += 1
            self.report(
                "error",
                "executed",
                {
                    **about,
                    "succeeded": False,
                    "reason": reason,
                    "error": answer.error,
                    "message": answer.text,
                    "stack": answer.stack,
                },
            )
        return answer

    def begin(self, work: Any) -> asyncio.Task[None]:
        """Do something beside the rest that is waited for at the end."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._in_hand.add(task)
        task.add_done_callback(self._ended)
        return task

    async def is_up(self, stop: Flag) -> bool:
        """Wait for a worker that lives; False when it is time to stop."""
        while not self.up.is_set() and not stop.is_set():
            await wait_any((self.up, stop), _LONG_SECONDS)
        return not stop.is_set()

    # --- beginning and end ---

    async def _listeners(self, functions: Sequence[Function]) -> list[_Listener]:
        run = [function for function in functions if not function.refused]
        if not run:
            why = "".join(f"; {each.name}: {each.refused}" for each in functions)
            raise InvalidSettings(f"the app has no function that is triggered by a queue or a timer{why}")
        made: list[_Listener] = []
        if self._http_port is not None and (asked := [each for each in run if each.trigger == HTTP_TRIGGER]):
            from taskgraph_functions_host.http_listener import KEY_VARIABLE, HttpListener  # here: few hosts need it

            listener = HttpListener(self, asked, self._http_port, self._environ.get(KEY_VARIABLE, ""))
            self._address = listener.address
            made.append(listener)
        for function in run:
            if function.retries:
                self.report("warning", "no-retries", {"function": function.name, "retries": function.retries})
            if function.trigger == HTTP_TRIGGER:
                continue
            if function.trigger == "timerTrigger":
                made.append(_TimerListener(self, function))
                continue
            source = await self._open_source(function.connection)
            await source.queues.count(function.queue)  # a wrong address is an error, and no silence
            made.append(_QueueListener(self, function, source))
        return made

    async def _until_over(self, tasks: Iterable[asyncio.Task[None]], stop: Flag) -> None:
        """Wait for the stop. Unforeseen errors are raised here."""
        stopped = asyncio.create_task(stop.wait())
        broken = self._broken
        assert broken is not None  # noqa: S101 - set by run
        try:
            pending: set[asyncio.Future[Any]] = {stopped, broken, *tasks}
            while not stop.is_set():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            stopped.cancel()

    async def _let_end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Let what is in hand end, for so long; then end it, so that its messages are there for others at once."""
        self.report("info", "stopping", {"inHand": len(self._in_hand)})
        until = self.clock.monotonic() + self._grace_seconds
        while left := {task for task in (*tasks, *self._in_hand) if not task.done()}:
            seconds = until - self.clock.monotonic()
            if seconds <= 0 and self._worker is not None:
                self.report("warning", "cut-short", {"inHand": len(self._in_hand), "graceSeconds": self._grace_seconds})
                worker, self._worker = self._worker, None
                await worker.kill()
                seconds = _LONG_SECONDS  # what is left now waits for storage alone, and that has its own bounds
            await asyncio.wait(left, timeout=max(seconds, 0.01), return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.result()

    async def _end(self, tasks: Iterable[asyncio.Task[None]], first: WorkerProcess) -> None:
        left = [task for task in (*tasks, *self._in_hand) if not task.done()]
        for task in left:
            task.cancel()
        worker = self._worker or first
        if left:
            await worker.kill()
            await asyncio.wait(left)
        await worker.end()
        if self._broken is not None and self._broken.done():
            self._broken.exception()  # raised already, or overtaken by another

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._in_hand.discard(task)
        if not task.cancelled() and (error := task.exception()) and self._broken and not self._broken.done():
            self._broken.set_exception(error)

    # --- the worker ---

    async def _mind_worker(self, first: WorkerProcess, stop: Flag) -> None:
        """Start the worker again whenever it has died, later and later while it does so at once."""
        worker: WorkerProcess | None = first
        pause = _RESTART_SECONDS
        while True:
            if worker is not None:
                since = self.clock.monotonic()
                while not worker.ended.is_set() and not stop.is_set():
                    await wait_any((worker.ended, stop), _LONG_SECONDS)
                if stop.is_set():
                    return
                self.up.clear()
                self._worker = None
                if self.clock.monotonic() - since >= _STEADY_SECONDS:
                    pause = _RESTART_SECONDS
                about = {"pid": worker.pid, "how": worker.end_in_words(), "restartSeconds": pause}
                self.report("error", "worker-died", about)
            await wait_any((stop,), pause)
            pause = min(pause * 2, _RESTART_SECONDS_MAX)
            if stop.is_set():
                return
            try:
                worker = await self._launch(self._log)
            except WorkerDied as died:
                worker = None
                self.report("error", "worker-not-started", {"message": str(died), "restartSeconds": pause})
            else:
                self._take(worker)
                self.report("info", "worker-started", {"pid": worker.pid})

    def _take(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._ids = {str(each["name"]): str(each["id"]) for each in worker.found}
        self.up.set()

    def _log(self, line: LogLine) -> None:
        function = self._names.get(line.invocation, "")
        category = f"Function.{function}.User" if function and not line.system else line.category
        if line.system or self.host_json.shows(category, line.level):
            about = {"logLevel": line.level, "category": line.category, "function": function}
            loud = {"Critical": "error", "Error": "error", "Warning": "warning", "Information": "info"}
            self.report(
                loud.get(line.level, "debug"),
                "log",
                {**about, "invocation": line.invocation, "message": line.message},
            )


class _QueueListener:
    """One queue trigger: fetches messages while there is room, and sees each to its end."""

    def __init__(self, host: FunctionsHost, function: Function, source: Source) -> None:
        self._host = host
        self._function = function
        self._queues = source.queues
        self._wakeup = source.wakeup
        self._in_work: set[asyncio.Task[None]] = set()
        self._trouble = False

    async def run(self, stop: Flag) -> None:
        rules = self._host.host_json
        pause = _FIRST_PAUSE_SECONDS
        while await self._host.is_up(stop):
            ticket = self._wakeup.ticket(self._function.queue) if self._wakeup else None
            deliveries = await self._receive()
            if deliveries is None:
                await wait_any((stop,), pause)
                pause = min(pause * 2, _TROUBLE_SECONDS_MAX)
                continue
            if stop.is_set():
                await asyncio.gather(*(self._offer(each, 0.0) for each in deliveries))
                return
            if deliveries:
                pause = _FIRST_PAUSE_SECONDS
                for each in deliveries:
                    task = self._host.begin(self._see_to(each))
                    self._in_work.add(task)
                    task.add_done_callback(self._in_work.discard)
                await self._wait_for_room(rules.new_batch_threshold, stop)
                continue
            seconds = pause * (0.8 + 0.4 * self._host.clock.jitter())
            rung = await ticket.wait(stop, seconds) if ticket else await wait_any((stop,), seconds)
            pause = _FIRST_PAUSE_SECONDS if rung else min(pause * 2, rules.polling_seconds_max)

    async def _receive(self) -> list[Delivery] | None:
        """Messages, locked for us; None when storage does not answer."""
        queue, host = self._function.queue, self._host
        try:
            found = await self._queues.receive(queue, count=host.host_json.batch_size, lease_seconds=host.lock_seconds)
        except StorageError as error:
            if not self._trouble:
                self._trouble = True
                host.report("warning", "queue-trouble", {"queue": queue, "message": str(error)})
            return None
        if self._trouble:
            self._trouble = False
            host.report("info", "queue-answers", {"queue": queue})
        return found

    async def _wait_for_room(self, threshold: int, stop: Flag) -> None:
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while len(self._in_work) > threshold and not stop.is_set():
                await asyncio.wait({stopped, *self._in_work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()

    async def _see_to(self, delivery: Delivery) -> None:
        """One message: call the function, then delete it, offer it again, or set it aside."""
        host, function = self._host, self._function
        most, poison = host.host_json.max_dequeue_count, function.poison_queue
        if poison and delivery.dequeue_count > most:
            await self._set_aside(delivery, f"taken {delivery.dequeue_count} times, and {most} are allowed")
            return
        try:
            data = self._data(delivery.body)
        except ValueError:
            if poison:
                await self._set_aside(delivery, "its text is not base64, as messageEncoding of host.json wants it")
            else:
                await self._offer(delivery, host.lock_seconds)
            return
        done = Flag()
        lock = asyncio.create_task(self._keep_locked(delivery, done))
        try:
            reason = f"message {delivery.id} of {function.queue}, time {delivery.dequeue_count}"
            answer = await host.call(function, data, _metadata(delivery, data, host), reason)
        finally:
            done.set()
            delivery = await lock  # not cancelled: a renewal under way would leave us without its receipt
        if answer.succeeded:
            await self._delete(delivery)
        elif poison and delivery.dequeue_count >= most:
            await self._set_aside(delivery, f"failed {delivery.dequeue_count} times")
        else:
            await self._offer(delivery, host.host_json.visibility_seconds)

    def _data(self, body: str) -> dict[str, str]:
        """What the function gets. Raises ValueError for a body that is not written as it should be."""
        if not self._host.host_json.base64:
            return typed(body.encode("utf-8")) if self._function.binary else typed(body)
        try:
            content = base64.b64decode(body, validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
        return typed(content) if self._function.binary else typed(content.decode("utf-8", "replace"))

    async def _keep_locked(self, delivery: Delivery, done: Flag) -> Delivery:
        """Renew the lock at half time until the function has ended; gives the delivery as it is then."""
        host = self._host
        pause = host.lock_seconds / 2
        while not await wait_any((done,), pause):
            try:
                delivery = await self._queues.renew(delivery, lease_seconds=host.lock_seconds)
                pause = host.lock_seconds / 2
            except StaleDelivery:
                host.report("warning", "lock-lost", _about(delivery, "another host has taken or deleted it"))
                await done.wait()
            except StorageError as error:
                host.report("warning", "lock-trouble", _about(delivery, str(error)))
                pause = min(_RENEW_AGAIN_SECONDS, host.lock_seconds / 10)
        return delivery

    async def _delete(self, delivery: Delivery) -> None:
        try:
            await self._queues.delete(delivery)
        except StorageError as error:
            self._host.report("warning", "not-deleted", _about(delivery, f"it will come again: {error}"))

    async def _offer(self, delivery: Delivery, seconds: float) -> None:
        """Let others have it after so long."""
        try:
            await self._queues.renew(delivery, lease_seconds=seconds)
        except StorageError as error:
            self._host.report("warning", "not-offered", _about(delivery, f"it comes when its lock ends: {error}"))
            return
        if seconds == 0 and self._wakeup:
            self._wakeup.notify(delivery.queue)

    async def _set_aside(self, delivery: Delivery, why: str) -> None:
        """Copy it to the poison queue, as it is, and delete it. Dying between the two leaves both."""
        poison = self._function.poison_queue
        try:
            await self._queues.send(poison, [delivery.body])
        except (StorageError, TooLarge, ValueError) as error:
            self._host.report("error", "not-set-aside", _about(delivery, f"it comes when its lock ends: {error}"))
            return
        self._host.report("error", "set-aside", {**_about(delivery, why), "poisonQueue": poison})
        await self._delete(delivery)


class _TimerListener:
    """One timer trigger. Runs follow each other: what falls due meanwhile is one run, at once afterwards."""

    def __init__(self, host: FunctionsHost, function: Function) -> None:
        self._host = host
        self._function = function
        self._schedule = Schedule(function.schedule)
        self._monitored = function.use_monitor and not self._schedule.often()
        self._last: datetime | None = None

    async def run(self, stop: Flag) -> None:
        clock = self._host.clock
        due = self._schedule.after(clock.now())
        if self._function.run_on_startup:
            began = clock.now()
            await self._call(due, past_due=False, reason="at the start")
            due = self._schedule.after(began)
        while not stop.is_set():
            left = (due - clock.now()).total_seconds()
            if left > 0:
                await wait_any((stop,), min(left, _LONG_SECONDS))
                continue
            missed = not self._host.up.is_set()  # no host was there to run it in time
            if not await self._host.is_up(stop):
                return
            began = max(clock.now(), due)
            await self._call(due, past_due=missed, reason=f"timer, due {_iso(due)}")
            self._last = began
            due = self._schedule.after(began)

    async def _call(self, due: datetime, *, past_due: bool, reason: str) -> None:
        about = {
            "Schedule": {"AdjustForDST": not self._schedule.often()},
            "ScheduleStatus": {
                "Last": _iso(self._last) if self._last else _NEVER,
                "Next": _iso(due),
                "LastUpdated": _iso(self._last) if self._last else _NEVER,
            }
            if self._monitored
            else None,
            "IsPastDue": past_due,
        }
        text = json.dumps(about, separators=(",", ":"))

        async def once() -> None:
            answer = await self._host.call(self._function, typed(text, as_json=True), {}, reason)
            if answer.succeeded and past_due:
                self._host.report("info", "past-due", {"function": self._function.name, "due": _iso(due)})

        task = self._host.begin(once())
        await asyncio.wait({task})


# --- what goes along with a message ----------------------------------------------------------------------------


def _metadata(delivery: Delivery, data: Mapping[str, str], host: FunctionsHost) -> dict[str, dict[str, str]]:
    """What Azure's host gives beside a message's body, in its own forms: texts, and JSON for the rest."""
    hidden_until = host.clock.now() + timedelta(seconds=host.lock_seconds)
    return {
        "QueueTrigger": dict(data),
        "Id": typed(delivery.id),
        "PopReceipt": typed(delivery.receipt),
        "DequeueCount": typed(str(delivery.dequeue_count), as_json=True),
        "InsertionTime": typed(json.dumps(_written(delivery.inserted)), as_json=True),
        "ExpirationTime": typed(json.dumps(_written(delivery.expires)), as_json=True),
        "NextVisibleTime": typed(json.dumps(_iso(hidden_until)), as_json=True),
    }


def _written(time: str) -> str:
    """A time of the queue service as the host writes it."""
    with contextlib.suppress(ValueError, TypeError):
        return _iso(parsedate_to_datetime(time))
    return _NEVER


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat()


def _guid(slug: str) -> str:
    """The same chance in the form in which the host writes ids."""
    text = base64.urlsafe_b64decode(slug + "==").hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _about(delivery: Delivery, message: str) -> dict[str, Any]:
    """Which message; never what is in it."""
    return {
        "queue": delivery.queue,
        "messageId": delivery.id,
        "dequeueCount": delivery.dequeue_count,
        "message": message,
    }


def _ready(
    functions: Sequence[Function], worker: WorkerProcess, rules: HostJson, address: str | None
) -> dict[str, Any]:
    return {
        "address": address,
        "pid": worker.pid,
        "worker": worker.version,
        "python": worker.python,
        "batchSize": rules.batch_size,
        "newBatchThreshold": rules.new_batch_threshold,
        "maxDequeueCount": rules.max_dequeue_count,
        "messageEncoding": "base64" if rules.base64 else "none",
        "functions": [each.as_object() for each in functions],
    }
