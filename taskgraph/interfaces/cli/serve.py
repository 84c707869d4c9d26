"""The commands `serve` and `worker`: processes that handle and run until they are stopped."""

import contextlib
import logging
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import PassOption, Session, WithStoreOption, begin, examples
from taskgraph.interfaces.cli.options import (
    ExecutorOption,
    GraceOption,
    HostOption,
    LeaseOption,
    LogFormatOption,
    PythonOption,
    SlotsOption,
    StoreOption,
    TargetOption,
    TimeScaleOption,
    VerboseOption,
    WorkerLabelOption,
)
from taskgraph.interfaces.cli.output import count
from taskgraph.interfaces.cli.served import default_slots, make_executors, serves
from taskgraph.interfaces.cli.signals import Stop, minding_signals
from taskgraph.interfaces.settings import read_keep_days
from taskgraph.model import limits
from taskgraph.model.secrecy import read_handed, withdraw

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.worker.loop import Worker


def serve(
    ctx: typer.Context,
    worker_slots: Annotated[
        int, typer.Option("--worker", min=0, metavar="N", help="Also run tasks, N side by side.")
    ] = 0,
    target: TargetOption = None,
    label: WorkerLabelOption = None,
    host: HostOption = None,
    executor: ExecutorOption = None,
    time_scale: TimeScaleOption = 1.0,
    python: PythonOption = None,
    pass_env: PassOption = None,
    with_store: WithStoreOption = False,
    lease_seconds: LeaseOption = limits.LEASE_SECONDS,
    keep_days: Annotated[
        float | None,
        typer.Option(
            "--keep-days",
            min=0,
            metavar="DAYS",
            help="Delete graphs so long after they have finished or were cancelled. Otherwise TASKGRAPH_KEEP_DAYS, "
            "then they are kept for ever.",
            show_default=False,
        ),
    ] = None,
    grace_seconds: GraceOption = limits.GRACE_SECONDS,
    store: StoreOption = None,
    verbose: VerboseOption = 0,
    log_format: LogFormatOption = None,
) -> None:
    """Handle the events of all graphs of a store, and repair what was lost, until told to stop.

    Any number of these may run over one store. SIGTERM and SIGINT end it gracefully; a second one at once.
    """
    session = begin(ctx, store=store, verbose=verbose, log_format=log_format)
    served = serves(target, label, host)
    from taskgraph.model.clock import SystemClock

    handed = read_handed(os.environ, pass_env or (), store=with_store)
    executors = make_executors(
        SystemClock(),
        executor=executor,
        time_scale=time_scale,
        python=python,
        grace_seconds=grace_seconds,
        handed=handed,
    )
    days = keep_days if keep_days is not None else read_keep_days(os.environ)
    from taskgraph.engine.outlets import read_outlets

    # A process that runs the commands of tasks may run those of notices: both come from the same documents.
    outlets = read_outlets(os.environ, commands=bool(worker_slots))

    async def serve_store(app: "App") -> int:
        from taskgraph.interfaces.loops import serve as serve_app

        workers = []
        withdraw(os.environ, handed)
        if worker_slots:
            made = app.worker(
                executors,
                targets=served.targets,
                offer=served.offer,
                slots=worker_slots,
                lease_seconds=lease_seconds,
                with_store=handed.store,
            )
            workers = [made]
        what = ", ".join(["handling events", *(_words_for(each, worker_slots) for each in workers)])
        async with _until_stopped(app, session, what) as stop:
            await serve_app(app, stop.event, workers=workers, keep_days=days, outlets=outlets)
        return failures.DONE

    raise typer.Exit(session.open(serve_store, measured=True))


SERVE_EXAMPLES = examples(
    "taskgraph serve", "taskgraph serve --worker 4 --target default --target gpu", "taskgraph serve --keep-days 30"
)


def worker(
    ctx: typer.Context,
    target: TargetOption = None,
    label: WorkerLabelOption = None,
    host: HostOption = None,
    slots: SlotsOption = None,
    executor: ExecutorOption = None,
    time_scale: TimeScaleOption = 1.0,
    python: PythonOption = None,
    pass_env: PassOption = None,
    with_store: WithStoreOption = False,
    lease_seconds: LeaseOption = limits.LEASE_SECONDS,
    grace_seconds: GraceOption = limits.GRACE_SECONDS,
    store: StoreOption = None,
    verbose: VerboseOption = 0,
    log_format: LogFormatOption = None,
) -> None:
    """Run tasks that are ready, until told to stop.

    Any number of workers may run, anywhere. SIGTERM and SIGINT hand unfinished tasks back, for others to run; a second
    one ends it at once. Handlers must run too: taskgraph serve.
    """
    session = begin(ctx, store=store, verbose=verbose, log_format=log_format)
    served = serves(target, label, host)
    from taskgraph.model.clock import SystemClock

    handed = read_handed(os.environ, pass_env or (), store=with_store)
    executors = make_executors(
        SystemClock(),
        executor=executor,
        time_scale=time_scale,
        python=python,
        grace_seconds=grace_seconds,
        handed=handed,
    )

    async def work_for_store(app: "App") -> int:
        from taskgraph.interfaces.loops import work

        withdraw(os.environ, handed)
        number = slots or default_slots()
        made = app.worker(
            executors,
            targets=served.targets,
            offer=served.offer,
            slots=number,
            lease_seconds=lease_seconds,
            with_store=handed.store,
        )
        async with _until_stopped(app, session, _words_for(made, number)) as stop:
            await work(app, stop.event, made)
        return failures.DONE

    raise typer.Exit(session.open(work_for_store, measured=True))


WORKER_EXAMPLES = examples(
    "taskgraph worker --slots 4",
    "taskgraph worker --target gpu --label cuda-12 --python mypackage.tasks",
    "taskgraph worker --host .",
    "taskgraph worker --executor noop",
)


def _words_for(worker: "Worker", slots: int) -> str:
    return f"running tasks of {', '.join(worker.targets)}, {count(slots, 'slot')}, as {worker.name}"


@contextlib.asynccontextmanager
async def _until_stopped(app: "App", session: Session, what: str) -> AsyncIterator[Stop]:
    """The time until a signal. The store is asked once before, so that a wrong address is an error and no silence."""
    await app.handlers.dispatcher.events_waiting()

    def on_signal(signals: int) -> None:
        if signals == 1:
            session.say("stopping: what is in hand is finished or handed back; once more ends it at once")
        else:
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    async with minding_signals(on_signal) as stop:
        session.say(f"{what}; store {app.settings.display}; stop with Ctrl-C")
        yield stop
