"""The composition root: settings in, a working installation out.

The only file that names concrete adapters: it builds each part once and hands it what it needs. A part that not every
command needs is imported and built when it is first asked for: to look at a graph takes neither handlers nor workers.
"""

import contextlib
import functools
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskgraph.engine.telemetry import OFF, Telemetry
from taskgraph.interfaces.settings import WITHHELD, StoreSettings
from taskgraph.interfaces.telemetry import setup
from taskgraph.model import limits
from taskgraph.model.clock import Clock, SystemClock
from taskgraph.model.names import QueueNames
from taskgraph.model.secrecy import is_secret
from taskgraph.queries.graphs import Queries
from taskgraph.queries.workers import HANDLER, Crew, IsDead, crew, not_known
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.memory import MemoryQueues
from taskgraph.storage.own_queues import WithOwn
from taskgraph.storage.queues import HiddenMessages, Queues
from taskgraph.storage.signals.news import News, Pauses
from taskgraph.storage.signals.wakeup import Announced, Wakeup
from taskgraph.storage.signals.wakeup_sockets import WakeupSockets
from taskgraph.storage.signals.worker_locks import WorkerLocks, worker_locks
from taskgraph.storage.tables import Tables

if TYPE_CHECKING:
    from taskgraph.engine.consumer import Consumer
    from taskgraph.engine.handlers import Handlers
    from taskgraph.engine.notifier import Notifier
    from taskgraph.engine.outlets import OutletSettings
    from taskgraph.engine.poison import Poison
    from taskgraph.engine.schedules import Schedules
    from taskgraph.engine.signing import Signer
    from taskgraph.model.placement import Offer
    from taskgraph.queries.overview import Overview
    from taskgraph.storage.http.calls import Server
    from taskgraph.storage.site import Site
    from taskgraph.worker.executors import Executors
    from taskgraph.worker.gateway import Gateway
    from taskgraph.worker.loop import Worker
    from taskgraph.worker.registration import Registration

_IDLE_SECONDS_MAX: Final = 10.0

Sign = Callable[[str, str, datetime, str], str]
"""(table, partition, when it ends, addresses or "") -> a signature that opens the partition for reading."""


@dataclass(frozen=True, slots=True)
class App:
    """The parts of one installation, over one store."""

    settings: StoreSettings
    clock: Clock
    tables: Tables
    queues: Queues
    logs: StoredLogs
    wakeup: Wakeup
    names: QueueNames
    queries: Queries
    made_handlers: "Callable[[], Handlers]" = field(repr=False)
    """Gives the same handlers each time; see `handlers`."""
    made_poison: "Callable[[], Poison]" = field(repr=False)
    made_gateway: "Callable[[], Gateway]" = field(repr=False)
    telemetry: Telemetry = OFF
    locks: WorkerLocks | None = None
    """Lock files of workers; only where the store is a file of this machine."""
    hidden: HiddenMessages | None = None
    """Messages that a clock which is ahead may have hidden; only where the store has no clock of its own."""
    taken_away: Callable[[], str] | None = None
    """What became of the store's file: "" while it lies where it was opened. Only where the store is a file."""
    give_back: Callable[[], Awaitable[bool]] | None = None
    """Makes the file shorter if most is free; gives whether there is more to do. Only where the store is a file."""
    server: "Server | None" = None
    """Asked to do what is to be written; only where the store is behind one."""
    table_endpoint: str = ""
    sign: Sign | None = field(default=None, repr=False)
    """What signs for the reading of a graph, at that endpoint; only where the store has the account's key."""
    sign_changes: Callable[[str, str, datetime, str], tuple[str, str]] | None = field(default=None, repr=False)
    """What signs for asking for changes of a graph: see `changes_signer`."""
    sign_files: Callable[[datetime, str], str] | None = field(default=None, repr=False)
    """What signs for the files of runs until then, from these addresses: gives their endpoint with a signature."""
    site: "Callable[[], Site] | None" = field(default=None, repr=False)
    """The static website of the store; only where it is a storage account."""

    @property
    def handlers(self) -> "Handlers":
        return self.made_handlers()

    @property
    def poison(self) -> "Poison":
        return self.made_poison()

    @property
    def gateway(self) -> "Gateway":
        return self.made_gateway()

    def check_direct(self, what: str, instead: str = "") -> None:
        """Raise InvalidInput for what takes the store itself, where a server is between. See `only_the_server`."""
        if self.server is not None:
            from taskgraph.storage.http.refusal import only_the_server

            raise only_the_server(self.server.address, what, instead)

    def schedules(self) -> "Schedules":
        if self.server is not None:
            from taskgraph.interfaces.operations.over_http import ServedSchedules

            return ServedSchedules(self.server, self.handlers, self.queries)
        from taskgraph.engine.schedules import Schedules
        from taskgraph.interfaces.operations.checks import asked_by

        return Schedules(self.handlers, self.queries, lambda: self.wakeup.notify(self.names.schedules), asked_by)

    async def event_queues(self) -> Sequence[str]:
        """The queues that handlers of this store receive from. Raises StorageUnavailable."""
        found = self.handlers.dispatcher.event_queues
        await found.refresh()
        return found.received

    def overview(self) -> "Overview":
        """What looks at all of the store; kept, it knows how fast graphs go."""
        from taskgraph.queries.event_queues import EventQueues
        from taskgraph.queries.overview import Overview

        event_queues = EventQueues(self.tables, self.clock, self.names) if self.server is None else None
        parts = self.tables, self.queues, self.clock, self.names
        return Overview(*parts, is_dead=self.is_dead, event_queues=event_queues)

    def signer(self, environ: Mapping[str, str]) -> "Signer | None":
        from taskgraph.engine.signing import read_signer

        return read_signer(environ, by=user_name(), at=self.clock.now().isoformat(timespec="seconds"))

    def consumer(self, *, lease_seconds: float = limits.HANDLER_LEASE_SECONDS) -> "Consumer":
        from taskgraph.engine.consumer import Consumer

        self.check_direct("handling events")
        return Consumer(
            self.handlers,
            self.poison,
            self.wakeup,
            lease_seconds=lease_seconds,
            idle_seconds_max=idle_seconds_max(lease_seconds),
        )

    @contextlib.asynccontextmanager
    async def notifier(self, settings: "OutletSettings") -> "AsyncIterator[Notifier]":
        """What delivers to the channels of graphs; its connections are closed on leaving."""
        from taskgraph.engine.notifier import Notifier
        from taskgraph.engine.outlets import Outlets

        outlets = Outlets(self.queues, self.clock, settings, prefix=self.settings.prefix)
        try:
            yield Notifier(self.tables, self.clock, outlets, worker_name(self.clock))
        finally:
            await outlets.close()

    def worker(
        self,
        executors: "Executors",
        *,
        name: str = "",
        targets: Sequence[str] = ("default",),
        offer: "Offer | None" = None,
        slots: int = 1,
        lease_seconds: float = limits.LEASE_SECONDS,
        with_store: bool = False,
        folder: str = "",
    ) -> "Worker":
        """A worker over some targets. offer: what it brings beside its executors. with_store: see `store_url`.

        folder: see `WorkerContext`.
        """
        from taskgraph.worker.loop import Worker

        self.check_direct("running tasks")
        return Worker(
            self.handlers,
            self.poison,
            executors,
            self.logs,
            self.wakeup,
            name=name or worker_name(self.clock),
            targets=targets,
            offer=offer,
            slots=slots,
            lease_seconds=lease_seconds,
            idle_seconds_max=idle_seconds_max(lease_seconds),
            store_url=store_url(self.settings, with_store=with_store),
            folder=folder,
        )

    @property
    def is_dead(self) -> IsDead:
        return self.locks.is_dead if self.locks is not None else not_known

    async def crew(self) -> Crew:
        """The workers and handlers of this store."""
        return await crew(self.tables, self.clock.now(), self.is_dead)

    def handler_registration(
        self, name: str, *, kind: str = HANDLER, every_seconds: float = limits.HANDLER_SEEN_SECONDS
    ) -> "Registration":
        """kind: HANDLER, or FUNCTION_APP."""
        from taskgraph.worker.registration import RegisteredHandler, Registration, WorkerDetails

        details = WorkerDetails((), (), (), host_name(), 0, setup.version(), os.getpid(), every_seconds, kind)
        return Registration(self.tables, self.clock, RegisteredHandler(name), details)

    def registration(self, worker: "Worker") -> "Registration":
        from taskgraph.worker.registration import Registration, WorkerDetails

        offer = worker.offer
        details = WorkerDetails(
            targets=worker.targets,
            labels=sorted(offer.labels),
            executors=sorted(worker.executors),
            host=offer.host or host_name(),
            slots=worker.slots,
            version=setup.version(),
            pid=os.getpid(),
            every_seconds=min(limits.WORKER_SEEN_SECONDS, worker.lease_seconds / 2),
            prompt=self.settings.path is not None,
        )
        return Registration(self.tables, self.clock, worker, details)


def idle_seconds_max(lease_seconds: float) -> float:
    """The longest pause between two empty receives.

    Work that wakes no worker is noticed after so long: what is sent on another machine after a quiet time, and what
    comes back from a receiver that died. A sixth of the lease makes the latter hardly later; one queue, polled every
    ten seconds, costs 360 operations an hour. It grows to three times as much while nothing comes (see Pacer).
    """
    return min(lease_seconds / 6, _IDLE_SECONDS_MAX)


def worker_name(clock: Clock) -> str:
    """A name that no other worker has: host, process, and a few random characters."""
    return f"{host_name()}-{os.getpid()}-{clock.new_id()[:6]}"


def user_name() -> str:
    """USER@HOST of this process, for people."""
    import getpass

    try:
        return f"{getpass.getuser()}@{host_name()}"
    except (KeyError, OSError):  # a container without names for its users
        return host_name()


def host_name() -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in socket.gethostname())[:60]


def own_folder() -> str:
    """The folder of this process, which graphs that it submits keep; "" if it is gone, too long, or no text."""
    try:
        folder = os.getcwd()
        folder.encode()
    except (OSError, UnicodeEncodeError):
        return ""
    return folder if len(folder) <= limits.FOLDER_CHARS_MAX else ""


def store_url(settings: StoreSettings, *, with_store: bool) -> str:
    """What TASKGRAPH_STORE is for a command that a task runs, so that it may extend its own graph.

    A path or an endpoint opens nothing by itself. A connection string holds a key, which opens the whole account (that
    of the emulator may hold none): commands get it only if the worker's owner says so (with_store).
    """
    if settings.connection_string:
        kept = is_secret("", settings.connection_string) and not with_store
        return WITHHELD if kept else settings.connection_string
    return settings.display if settings.embedded else settings.table_endpoint


def wakeup_sockets_of(settings: StoreSettings, clock: Clock) -> WakeupSockets | None:
    """What wakes a store's processes on this machine; None without Unix sockets, and for a store that has none here."""
    if not hasattr(socket, "AF_UNIX") or settings.handed_in is not None or settings.server:
        return None
    if settings.path is None:
        return WakeupSockets.of_user(settings.display, clock)
    return WakeupSockets.beside(settings.path, clock)


def _clock_of(settings: StoreSettings) -> Clock:
    """The machine's clock; that of a store that was handed in; beside a storage service, one that goes by its time."""
    if settings.handed_in is not None:
        return settings.handed_in.clock
    if settings.embedded or settings.server:
        return SystemClock()
    from taskgraph.storage.azure.time import ServiceClock

    return ServiceClock(SystemClock())


def _handlers(
    settings: StoreSettings, telemetry: Telemetry, tables: Tables, queues: Queues, clock: Clock, names: QueueNames
) -> "Handlers":
    from taskgraph.engine.commit import Records
    from taskgraph.engine.handlers import Handlers
    from taskgraph.storage.metered import Meter, MeteredQueues, MeteredTables

    meter = Meter()
    handlers = Handlers(
        Records(MeteredTables(tables, meter), clock, meter),
        MeteredQueues(queues, meter),
        clock,
        names,
        telemetry=telemetry,
        stalled_seconds=settings.stalled_seconds,
        cached_rows_max=settings.cached_rows_max,
        sends_beside=settings.path is None,  # where a call is a way through the network
    )
    if settings.server or settings.handed_in is not None:
        # The server knows how many there are; a link to one graph does not show that row; in memory one is enough.
        handlers.dispatcher.event_queues.only_first = True
    return handlers


def _poison(
    server: "Server | None", telemetry: Telemetry, tables: Tables, queues: Queues, clock: Clock, names: QueueNames
) -> "Poison":
    if server is not None:
        from taskgraph.interfaces.operations.over_http import ServedPoison

        return ServedPoison(server, tables, queues, clock, names)
    from taskgraph.engine.poison import Poison

    return Poison(tables, queues, clock, names, telemetry)


def _gateway(handlers: "Handlers", poison: "Poison", logs: StoredLogs, wakeup: Wakeup) -> "Gateway":
    from taskgraph.worker.gateway import Gateway

    return Gateway(handlers, poison, logs, wakeup, setup.version())


async def _left_open() -> None:
    """A store that was handed in is closed by its owner."""


@contextlib.asynccontextmanager
async def open_app(
    settings: StoreSettings, *, clock: Clock | None = None, telemetry: Telemetry | None = None
) -> AsyncIterator[App]:
    """Open a store, and close it on leaving. Nothing is written or asked until it is used.

    telemetry: what the process has set up, if it is None.
    """
    clock = clock or _clock_of(settings)
    telemetry = telemetry if telemetry is not None else setup.found()
    wakeup = Wakeup(wakeup_sockets_of(settings, clock))
    of_kind: dict[str, Any] = {}  # what only one kind of store has
    news: News = Pauses(clock)
    locks: WorkerLocks | None = None
    if settings.handed_in is not None:
        store = settings.handed_in
        tables, logs = store.tables(settings.prefix), store.logs()
        queues: Queues = store.queues()
        close = _left_open
    elif settings.path is not None:
        from taskgraph.storage.sqlite.store import EmbeddedStore

        embedded = EmbeddedStore(settings.path, clock, synchronous=settings.synchronous)
        tables, logs = embedded.tables(settings.prefix), embedded.logs()
        queues, close = embedded.queues(), embedded.close
        locks = worker_locks(settings.path)
        of_kind.update(hidden=queues, taken_away=embedded.taken_away, give_back=embedded.give_back, locks=locks)
    elif settings.server:
        from taskgraph.storage.http.store import HttpStore

        served = HttpStore(settings.server, settings.token, clock, settings.prefix, telemetry.outgoing)
        tables, queues, logs, close = served.tables, served.queues, served.logs, served.close
        of_kind.update(server=served.server)
        news = served.news
    else:
        from taskgraph.storage.azure.account import AzureStore  # importing the SDK takes a second: only here

        if settings.connection_string:
            azure = AzureStore.from_connection_string(settings.connection_string, clock)
        else:
            azure = AzureStore.from_endpoints(
                clock=clock,
                table_endpoint=settings.table_endpoint,
                queue_endpoint=settings.queue_endpoint,
                blob_endpoint=settings.blob_endpoint,
                client_id=settings.client_id,
                managed_identity=settings.managed_identity,
            )
        tables, logs = azure.tables(settings.prefix), azure.logs()
        queues, close = azure.queues(), azure.close
        of_kind.update(table_endpoint=azure.table_endpoint, sign=azure.partition_signer())
        of_kind.update(sign_changes=azure.changes_signer(), sign_files=azure.files_signer(), site=azure.site)
    queues = Announced(queues, wakeup)
    if telemetry.enabled:
        tables, logs = telemetry.tables(tables, clock), telemetry.logs(logs, clock)
        queues = telemetry.queues(queues, clock)
    queues = WithOwn(queues, Announced(MemoryQueues(clock), wakeup))
    names = QueueNames(settings.prefix, settings.queues_per_operation)
    parts = tables, queues, clock, names
    server = of_kind.get("server")
    made_handlers = functools.cache(lambda: _handlers(settings, telemetry, *parts))
    made_poison = functools.cache(lambda: _poison(server, telemetry, *parts))
    try:
        yield App(
            settings=settings,
            clock=clock,
            tables=tables,
            queues=queues,
            logs=logs,
            wakeup=wakeup,
            names=names,
            queries=Queries(*parts, is_dead=locks.is_dead if locks is not None else not_known, news=news),
            made_handlers=made_handlers,
            made_poison=made_poison,
            made_gateway=functools.cache(lambda: _gateway(made_handlers(), made_poison(), logs, wakeup)),
            telemetry=telemetry,
            **of_kind,
        )
    finally:
        wakeup.close()
        await close()
