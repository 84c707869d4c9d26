"""The real command line in a process that is out of luck: `python -m tests.chaos.launcher serve …`.

What this room is for: putting faults and other clocks under the real program, from outside, as the environment says.
The program itself has no switch for tests: its store takes another transport, and the rest is put in its place here.

    TASKGRAPH_CHAOS          a transport.Plan: requests that go wrong
    TASKGRAPH_CHAOS_CLOCK    seconds by which this process's clock is ahead (or behind, if below 0)
    TASKGRAPH_CHAOS_LIMITS   JSON: other values for HANDLER_LEASE_SECONDS, SWEEP_SECONDS, REDISPATCH_SECONDS
"""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from taskgraph.interfaces import app, loops
from taskgraph.model import limits
from taskgraph.model.clock import Clock, SystemClock
from taskgraph.storage.azure import account, pool
from tests.chaos.transport import VARIABLE, FaultyTransport, Plan

CLOCK_VARIABLE: Final = "TASKGRAPH_CHAOS_CLOCK"
LIMITS_VARIABLE: Final = "TASKGRAPH_CHAOS_LIMITS"
_LIMITS: Final = ("HANDLER_LEASE_SECONDS", "SWEEP_SECONDS", "REDISPATCH_SECONDS")


def faulty_store(text: str, clock: Clock, transport: FaultyTransport) -> account.AzureStore:
    """A store of the cloud kind whose requests go through this transport."""
    return account.AzureStore.from_connection_string(text, clock, transport=transport)


def real_transport() -> pool.Pool:
    """The store's own pool of connections, for an address without TLS."""
    return pool.Pool("http:")


def install(environment: Mapping[str, str]) -> None:
    """Make this process what its environment says."""
    if text := environ_of(environment, VARIABLE):
        plan = Plan.from_text(text)
        real = account.AzureStore.from_connection_string

        def from_connection_string(text: str, clock: Clock) -> account.AzureStore:
            return real(text, clock, transport=FaultyTransport(real_transport(), plan))

        account.AzureStore.from_connection_string = from_connection_string  # type: ignore[method-assign,assignment]
    if text := environ_of(environment, CLOCK_VARIABLE):
        ahead = timedelta(seconds=float(text))
        SystemClock.now = lambda self: datetime.now(UTC) + ahead  # type: ignore[method-assign]
    if text := environ_of(environment, LIMITS_VARIABLE):
        change_limits(json.loads(text))


def environ_of(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "")


def change_limits(values: Mapping[str, float]) -> None:
    """Put other periods in place of the product's own, also where they have become default values already."""
    unknown = set(values) - {*_LIMITS}
    if unknown:
        raise ValueError(f"no such limit: {sorted(unknown)}")
    for name, value in values.items():
        setattr(limits, name, value)
    defaults: tuple[tuple[Any, str, str], ...] = (
        (app.App.consumer, "lease_seconds", "HANDLER_LEASE_SECONDS"),
        (loops.sweep_forever, "period_seconds", "SWEEP_SECONDS"),
    )
    for function, parameter, name in defaults:
        if name in values:
            function.__kwdefaults__[parameter] = values[name]


def main() -> None:
    """Run the command that was typed."""
    install(os.environ)
    from taskgraph.interfaces.cli import main as run

    run()


if __name__ == "__main__":
    main()
