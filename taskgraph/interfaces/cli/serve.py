"""The commands that run until stopped: `serve`, `worker`, `ui`, `mcp`; and what the worker of a process takes."""

import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces.cli import options
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.output import count
from taskgraph.interfaces.cli.progress import Board
from taskgraph.interfaces.cli.signals import Stop, minding_signals
from taskgraph.interfaces.operations.checks import check_target
from taskgraph.interfaces.settings import StoreSettings, read_keep_days
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.model.secrecy import Handed, read_handed, withdraw

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.http.asgi import More
    from taskgraph.interfaces.http.server import Listening
    from taskgraph.model.clock import Clock
    from taskgraph.model.placement import Offer
    from taskgraph.worker.executors import Executors
    from taskgraph.worker.loop import Worker


_OF_A_DISPLAY: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True, slots=True)
class Serves:
    """What a worker takes. given: whether targets were named."""

    targets: Sequence[str]
    offer: "Offer"
    given: bool


@dataclass(frozen=True)
class WorkerOptions:
    """Options of `serve`, `worker` and `run`: what the worker of this process takes, and how it runs it."""

    target: options.TargetOption = None
    label: options.WorkerLabelOption = None
    host: options.HostOption = None
    executor: options.ExecutorOption = None
    time_scale: options.TimeScaleOption = 1.0
    python: options.PythonOption = None
    pass_env: options.PassOption = None
    with_store: options.WithStoreOption = False
    inherit_env: options.InheritOption = False
    cwd: options.CwdOption = None
    secrets: options.SecretsOption = None

    def handed(self, settings: StoreSettings) -> Handed:
        """Raises InvalidSettings."""
        return read_handed(
            os.environ,
            self.pass_env or (),
            store=self.with_store,
            inherit=self.inherit_env,
            place=self.secrets or "",
            shared=settings.shared,
        )

    def folder(self) -> str:
        """See `WorkerContext`. Raises InvalidInput where there is no such folder."""
        from taskgraph.worker.context import SUBMITTER

        if self.cwd is None or self.cwd == SUBMITTER:
            return self.cwd or ""
        if not os.path.isdir(self.cwd):
            raise InvalidInput(f"--cwd {self.cwd}: there is no such folder; make it, name another, or say {SUBMITTER}")
        return os.path.abspath(self.cwd)

    def executors(
        self, clock: "Clock", handed: Handed, *, board: Board | None = None, grace_seconds: float = limits.GRACE_SECONDS
    ) -> "Executors":
        """Raises InvalidSettings."""
        from taskgraph.worker.executors import Executors, built_in, load_callables

        callables: dict[str, Any] | None = None
        for place in self.python or ():
            found = load_callables(place)
            twice = sorted(set(callables or ()) & set(found))
            if twice:
                raise InvalidSettings(f"--python {place}: two callables are named {twice[0]}")
            callables = {**(callables or {}), **found}
        made = built_in(
            clock,
            callables=callables,
            override=self.executor,
            time_scale=self.time_scale,
            grace_seconds=grace_seconds,
            handed=handed,
        )
        return made if board is None else Executors(made.values(), self.executor, board.watched, made.later)

    def serves(self) -> Serves:
        """Raises InvalidInput."""
        from taskgraph.model.placement import DEFAULT_TARGET, Offer, host_target, is_host, is_worker_label

        labels, host = self.label or (), self.host
        for target in self.target or ():
            check_target(target)
        for label in labels:
            if not is_worker_label(label):
                raise InvalidInput(
                    f"--label {label}: a letter or digit, then letters, digits and . _ : / = + -, 63 at most"
                )
        if len(labels) > limits.WORKER_LABELS_MAX:
            raise InvalidInput(f"--label is given {len(labels)} times; {limits.WORKER_LABELS_MAX} are allowed")
        if host == ".":
            from taskgraph.interfaces.app import host_name

            host = host_name()
        if host is not None and not is_host(host):
            raise InvalidInput(f"--host {host}: a letter or digit, then letters, digits and . _ -, 63 at most")
        targets = list(dict.fromkeys([*(self.target or [DEFAULT_TARGET]), *([host_target(host)] if host else [])]))
        return Serves(targets, Offer(frozenset(labels), host or ""), self.target is not None)


def default_slots() -> int:
    return max(2, os.cpu_count() or 2)


@dataclass(frozen=True)
class HttpOptions:
    """Options of `serve` about the HTTP API."""

    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="[HOST:]PORT",
            help="Also answer HTTP requests, on 127.0.0.1 unless a HOST is named; port 0 is any that is free.",
        ),
    ] = None
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="With --http on loopback: every user of this machine may do everything.")
    ] = False
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A further name by which requests may call this server."),
    ] = None
    rate: Annotated[
        float,
        typer.Option("--rate", min=0, metavar="N", help="So many requests a second of each token; 0 for any number."),
    ] = 0.0
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            min=1,
            metavar="N",
            help="So many runs of workers over HTTP may be in hand by one token at a time.",
            show_default=f"{limits.TOKEN_RUNS_MAX:,}",
        ),
    ] = None

    taskcluster: Annotated[
        bool,
        typer.Option("--taskcluster", help="Also answer clients of the old TaskCluster scheduler, under /v1."),
    ] = False
    exchanges: Annotated[
        str | None,
        typer.Option(
            "--exchanges",
            metavar="QUEUE",
            help="With --taskcluster: what the old scheduler's exchanges said of the graphs that its clients create is "
            "put on this queue of the store.",
        ),
    ] = None

    def check(self) -> None:
        if self.http is None and (self.no_auth or self.allow_host or self.rate or self.runs or self.taskcluster):
            raise InvalidInput("--no-auth, --allow-host, --rate, --runs and --taskcluster go with --http")
        if self.exchanges and not self.taskcluster:
            raise InvalidInput("--exchanges goes with --taskcluster")


@command(
    "taskgraph serve",
    "taskgraph serve --worker 4 --target default --target gpu",
    "taskgraph serve --keep-days 30",
    "taskgraph serve --queues 8",
    "taskgraph serve --worker 4 --http 8080",
    "taskgraph serve --http 8080 --taskcluster",
    "taskgraph serve --http 8080 --taskcluster --exchanges pulse",
    options=("store", "verbose", "log_format"),
)
def serve(
    session: Session,
    worker_slots: Annotated[
        int, typer.Option("--worker", min=0, metavar="N", help="Also run tasks, N side by side.")
    ] = 0,
    given: WorkerOptions = WorkerOptions(),
    lease_seconds: options.LeaseOption = limits.LEASE_SECONDS,
    keep_days: Annotated[
        float | None,
        typer.Option(
            "--keep-days",
            min=0,
            metavar="DAYS",
            help="Delete graphs so long after they have finished or were cancelled. Otherwise TASKGRAPH_KEEP_DAYS, "
            "then they are kept for ever.",
        ),
    ] = None,
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues",
            min=1,
            max=limits.EVENT_QUEUES_MAX,
            metavar="N",
            help="Share graphs out among N queues of events, so that up to N of these processes add up. The store "
            "keeps it: without this option it stays as it is, at first 1.",
        ),
    ] = None,
    grace_seconds: options.GraceOption = limits.GRACE_SECONDS,
    over: HttpOptions = HttpOptions(),
) -> None:
    """Handle the events of all graphs of a store, and repair what was lost, until stopped.

    Any number of these may run over one store. SIGTERM, SIGINT and SIGHUP end it gracefully; a second one at once.
    """
    over.check()
    handed = given.handed(session.settings)
    make_worker = _worker_of(given, handed, lease_seconds, grace_seconds)
    days = keep_days if keep_days is not None else read_keep_days(os.environ)
    from taskgraph.engine.outlets import read_outlets

    # A process that runs the commands of tasks may run those of notices: both come from the same documents.
    outlets = read_outlets(os.environ, commands=bool(worker_slots))

    async def serve_store(app: "App") -> None:
        from taskgraph.interfaces.loops import serve as serve_app

        app.check_direct("handling events")
        if queues is not None and app.names.per_operation:
            raise InvalidInput("--queues N goes with TASKGRAPH_QUEUES=one, and not with a queue for each kind of event")
        withdraw(os.environ, handed)
        workers = [make_worker(app, worker_slots)] if worker_slots else []
        what = ", ".join(["handling events", *(_words_for(each, worker_slots) for each in workers)])
        listening = await _listening(app, over)
        if listening is not None:
            what += f", answering on {listening.address}/api/v1, with a page on {listening.address}/"
        async with _until_stopped(app, session, what, grace_seconds) as stop:
            others = [] if listening is None else [partial(listening.run, app, stop.event)]
            await serve_app(
                app, stop.event, workers=workers, keep_days=days, outlets=outlets, others=others, queues=queues
            )

    session.open(serve_store, measured=True)


async def _listening(app: "App", over: HttpOptions) -> "Listening | None":
    """The port that answers requests, if one is wanted. Raises InvalidInput, Refused."""
    if over.http is None:
        return None
    from taskgraph.interfaces.http import server
    from taskgraph.interfaces.http.entra import read_entra
    from taskgraph.interfaces.web import files

    address = server.read_address(over.http)
    if over.runs is not None:
        app.gateway.in_flight_max = over.runs
    return await server.open_port(
        app,
        address,
        anonymous=over.no_auth,
        hosts=over.allow_host or (),
        rate=over.rate,
        entra=read_entra(os.environ),
        more=[*([_old_clients(over)] if over.taskcluster else []), *files.ROUTES],
    )


def _old_clients(over: HttpOptions) -> "More":
    """Raises InvalidInput where what they need is not installed, or their messages can go nowhere."""
    try:
        from taskgraph.interfaces.taskcluster import documents
        from taskgraph.interfaces.taskcluster.asgi import mount
    except ModuleNotFoundError as error:
        if error.name != "mohawk":
            raise
        raise InvalidInput(
            "--taskcluster needs mohawk, which reads signatures: pip install 'taskgraph-scheduler[taskcluster]'"
        ) from error
    from taskgraph.documents.read import document_from_object

    notify = documents.exchanges(over.exchanges) if over.exchanges else {}
    one = {key: channel for key, channel in notify.items() if key == "onFinished"}
    document_from_object({"tasks": {"any": {"task": {}}}, "notify": one}, source="--exchanges")
    return partial(mount, anonymous=over.no_auth, notify=notify)


@command(
    "taskgraph worker --slots 4",
    "taskgraph worker --target gpu --label cuda-12 --python mypackage.tasks",
    "taskgraph worker --host .",
    "taskgraph worker --executor noop",
    "taskgraph worker --until-idle 60",
    options=("store", "verbose", "log_format"),
)
def worker(
    session: Session,
    slots: options.SlotsOption = None,
    given: WorkerOptions = WorkerOptions(),
    lease_seconds: options.LeaseOption = limits.LEASE_SECONDS,
    grace_seconds: options.GraceOption = limits.GRACE_SECONDS,
    until_idle: Annotated[
        float | None,
        typer.Option(
            "--until-idle",
            min=1,
            max=limits.DELAY_SECONDS_MAX,
            metavar="SECONDS",
            help="End once there was nothing to do for so long: for workers that something else starts when there is.",
        ),
    ] = None,
) -> None:
    """Run tasks that are ready, until stopped.

    Any number of workers may run, anywhere. SIGTERM, SIGINT and SIGHUP hand unfinished tasks back, for
    others to run; a second one ends it at once. Handlers must run too: taskgraph serve.
    """
    handed = given.handed(session.settings)
    make_worker = _worker_of(given, handed, lease_seconds, grace_seconds)

    async def work_for_store(app: "App") -> None:
        from taskgraph.interfaces.loops import work

        withdraw(os.environ, handed)
        number = slots or default_slots()
        made = make_worker(app, number)
        async with _until_stopped(app, session, _words_for(made, number), grace_seconds) as stop:
            await work(app, stop.event, made, idle_seconds=until_idle or 0.0)

    session.open(work_for_store, measured=True)


def _worker_of(
    given: WorkerOptions, handed: Handed, lease_seconds: float, grace_seconds: float
) -> "Callable[[App, int], Worker]":
    """What makes the worker, with so many slots. Raises InvalidInput, InvalidSettings."""
    served, folder = given.serves(), given.folder()
    from taskgraph.model.clock import SystemClock

    executors = given.executors(SystemClock(), handed, grace_seconds=grace_seconds)
    return lambda app, slots: app.worker(
        executors,
        targets=served.targets,
        offer=served.offer,
        slots=slots,
        lease_seconds=lease_seconds,
        with_store=handed.store,
        folder=folder,
    )


def _words_for(worker: "Worker", slots: int) -> str:
    return f"running tasks of {', '.join(worker.targets)}, {count(slots, 'slot')}, as {worker.name}"


@contextlib.asynccontextmanager
async def _until_stopped(app: "App", session: Session, what: str, grace_seconds: float) -> AsyncIterator[Stop]:
    """The time until a signal. One request to the store comes before, so that a wrong address is an error."""
    await app.handlers.dispatcher.events_waiting()

    def on_signal(signals: int) -> None:
        if signals == 1:
            session.say("stopping: what is in hand is finished or handed back; once more ends it at once")
        else:
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    async with minding_signals(on_signal, grace_seconds) as stop:
        session.say(f"{what}; store {app.settings.display}; stop with Ctrl-C")
        yield stop


@command(
    "taskgraph ui",
    "taskgraph ui --store sqlite:///elsewhere/graphs.db",
    "taskgraph ui --no-browser",
    options=("store", "verbose", "log_format"),
)
def ui(
    session: Session,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address, for a browser that is opened by hand.")
    ] = False,
) -> None:
    """Show the graphs of a store in a browser, until stopped.

    The address that is printed opens everything, to users of this machine alone and while this runs: it has a token
    in it. Events are handled by serve and run, not by this.
    """

    async def show(app: "App") -> None:
        page = (app.settings.server or "").removesuffix("api/v1")
        app.check_direct("showing a store", f"open the page of that server: {page}")
        from taskgraph.interfaces.http import server
        from taskgraph.interfaces.operations.checks import asked_by
        from taskgraph.interfaces.web import files

        if not files.are_built():
            raise InvalidSettings(files.NOT_BUILT)
        listening, token = server.open_own(app, asked_by() or "ui", files.ROUTES)
        address = f"{listening.address}/#token={token}"
        async with minding_signals() as stop:
            session.output.data(address)
            session.say(f"showing store {app.settings.display}; stop with Ctrl-C")
            with _opened(session, address) if not no_browser else contextlib.nullcontext():
                await listening.run(app, stop.event)

    session.open(show)


@contextlib.contextmanager
def _opened(session: Session, address: str) -> Iterator[None]:
    """With a browser that finds the address in a file of this user alone: all users see the arguments of processes."""
    import tempfile
    import threading
    import webbrowser
    from pathlib import Path

    if not can_show(sys.platform, os.environ):
        session.output.hint("there is no display here: open the address by hand")
        yield
        return
    with tempfile.TemporaryDirectory(prefix="taskgraph-ui-") as folder:
        file = Path(folder, "ui.html")
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">', "utf-8")
        # Beside this: a browser may be waited for until it is closed.
        threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()
        yield


def can_show(platform: str, environ: Mapping[str, str]) -> bool:
    """Whether a browser would get a window. Without one Python takes one for terminals, and this terminal with it."""
    return platform != "linux" or any(environ.get(each) for each in _OF_A_DISPLAY)


@command(
    "taskgraph mcp",
    "taskgraph mcp --graph 'nightly-*' --apply",
    "taskgraph mcp --store https://graphs.example/api",
    options=("store", "verbose"),
)
def mcp(
    session: Session,
    graph: Annotated[
        list[str] | None,
        typer.Option("--graph", metavar="PATTERN", help="Only these graphs: ids with * and ?. May be repeated."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Let it change graphs too, each time by the digest of a fresh plan.")
    ] = False,
) -> None:
    """Answer an agent over standard input and output, by the Model Context Protocol.

    It may look at all that the HTTP API shows, and plan changes. With --apply it may make a change that it has planned:
    if anything relevant has moved since, it gets the new plan instead. The journal has its name.
    """

    async def answer(app: "App") -> None:
        try:
            from taskgraph.interfaces.mcp.server import serve
        except ModuleNotFoundError as error:
            if error.name not in ("mcp", "mcp_types"):
                raise
            raise InvalidInput("mcp needs the SDK of that protocol: pip install 'taskgraph-scheduler[mcp]'") from error
        session.say(f"answering an agent about store {app.settings.display}, until it closes standard input")
        await serve(app, graphs=graph or (), applies=apply)

    session.open(answer)
