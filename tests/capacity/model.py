"""What one graph, one account and many accounts carry, and what it costs: arithmetic over counted operations.

What this room is for: values in, values out. `Demand` says what a task asks of the store, as counted; `Limits` what the
service grants, as documented; `Latencies` and `Prices` are assumptions that can be named. It never measures, reads no
file and knows nothing of the protocol: a better protocol is a smaller demand. The formulas are explained in
docs/explanation/capacity.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What the service grants each second, as published; burst_seconds: for how long more is borne (assumed).

    Sources: «Scalability and performance targets for Table Storage», the same for Queue Storage and for standard
    storage accounts, in Microsoft's documentation. Larger accounts are granted more on request.
    """

    partition_entities: float = 2_000.0
    account_requests: float = 20_000.0
    queue_messages: float = 2_000.0
    burst_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds of one request, there and back. Assumed: Microsoft publishes none.

    pickup: from the moment when a message lies in a queue until a receiver in another process asks for it.
    """

    read: float = 0.005
    commit: float = 0.010
    queue: float = 0.008
    blob: float = 0.010
    pickup: float = 0.020


@dataclass(frozen=True, slots=True)
class Prices:
    """List prices in US dollars: of 10,000 requests, and of a gigabyte for a month. To be checked before use."""

    table_requests: float = 0.00036
    queue_requests: float = 0.004
    blob_requests: float = 0.05
    table_gigabyte_month: float = 0.045
    date: str = "2026-11-21"
    source: str = (
        "Azure list prices, locally redundant, general-purpose v2, hot blobs; the order of magnitude as generally "
        "known, not looked up: check them at azure.microsoft.com/pricing for your region"
    )


@dataclass(frozen=True, slots=True)
class Demand:
    """What a task of one shape asks of the store while its graph runs, as counted.

    entities: rows read and written. messages: by queue, those put, received, renewed and deleted. facts: commits that
    have to follow one another, because each takes the next number of the journal. levels: tasks on the longest path.
    step_seconds: from the start of a task to the start of the next one on that path (None: not known). empty_requests:
    receives that gave nothing; they are paid for, and vanish under load. stored_bytes: names and values, as sent.
    """

    name: str
    tasks: float
    table_requests: float
    queue_requests: float
    entities: float
    messages: Mapping[str, float] = field(default_factory=dict)
    blob_requests: float = 0.0
    facts: float | None = None
    levels: int | None = None
    step_seconds: float | None = None
    empty_requests: float = 0.0
    submit_requests: float = 0.0
    submit_entities: float = 0.0
    stored_bytes: float | None = None

    @property
    def requests(self) -> float:
        """All that one account is asked for."""
        return self.table_requests + self.queue_requests + self.blob_requests


PARTITION: Final = "partition"
LINE: Final = "journal"
PATH: Final = "path"
ACCOUNT: Final = "account"


def queue_bound(name: str) -> str:
    """What the limit of a queue is called."""
    return f"queue {name}"


def _rate(limit: float, each: float) -> float:
    return limit / each if each else math.inf


def account_bounds(demand: Demand, limits: Limits) -> dict[str, float]:
    """Limit -> tasks a second at which one account reaches it, with one queue of each kind."""
    found = {ACCOUNT: _rate(limits.account_requests, demand.requests)}
    for name, messages in demand.messages.items():
        found[queue_bound(name)] = _rate(limits.queue_messages, messages)
    return found


def graph_bounds(demand: Demand, limits: Limits, latencies: Latencies) -> dict[str, float]:
    """Limit -> tasks a second at which one graph reaches it. What is not known is left out.

    The journal's is an upper bound: a commit of facts begins at the earliest when the one before it has been answered.
    """
    found = {PARTITION: _rate(limits.partition_entities, demand.entities)}
    if demand.facts is not None:
        found[LINE] = _rate(1.0, demand.facts * latencies.commit)
    if demand.levels is not None and demand.step_seconds is not None:
        found[PATH] = _rate(demand.tasks, demand.levels * demand.step_seconds)
    return found


def least(bounds: Mapping[str, float]) -> tuple[str, float]:
    """The limit that binds first, and its tasks a second."""
    return min(bounds.items(), key=lambda each: each[1])


def graphs_to_fill(account: float, graph: float) -> int:
    """How many graphs side by side ask for as much as an account gives."""
    return max(1, math.ceil(account / graph - 1e-9))


def running_at(rate: float, task_seconds: float) -> float:
    """How many tasks of this length run at once at that rate (Little's law): fewer never reach it."""
    return rate * task_seconds


@dataclass(frozen=True, slots=True)
class Prediction:
    """Tasks a second, and why not more. All of it model values.

    graph: of one graph. account: of one account with many graphs, and one queue of each kind; account_alone: if there
    were queues enough. graphs: as many side by side fill the account (account_alone). queues: of each kind, for that.
    all_accounts: of as many accounts as were asked for, which share nothing. throttled_graph: from here on one graph
    is refused requests; an account is, from `account` on. submit_seconds: the least time that writing the graph takes.
    """

    demand: Demand
    graph: float
    graph_binds: str
    graph_bounds: Mapping[str, float]
    account: float
    account_binds: str
    account_alone: float
    graphs: int
    queues: Mapping[str, int]
    all_accounts: float
    throttled_graph: float
    submit_seconds: float
    money: Mapping[str, float]


def predict(
    demand: Demand,
    limits: Limits = Limits(),
    latencies: Latencies = Latencies(),
    prices: Prices = Prices(),
    *,
    accounts: int = 1,
    months: float = 1.0,
) -> Prediction:
    """Everything about one shape."""
    of_account = account_bounds(demand, limits)
    of_graph = {**graph_bounds(demand, limits, latencies), **of_account}
    binds, graph = least(of_graph)
    account_binds, account = least(of_account)
    alone = of_account[ACCOUNT]
    # The service refuses what exceeds its limits; the journal and the path only make everybody wait.
    refusing = {name: rate for name, rate in of_graph.items() if name not in (LINE, PATH)}
    return Prediction(
        demand=demand,
        graph=graph,
        graph_binds=binds,
        graph_bounds=of_graph,
        account=account,
        account_binds=account_binds,
        account_alone=alone,
        graphs=graphs_to_fill(alone, graph),
        queues={name: math.ceil(alone * each / limits.queue_messages - 1e-9) for name, each in demand.messages.items()},
        all_accounts=accounts * account,
        throttled_graph=least(refusing)[1],
        submit_seconds=demand.tasks * demand.submit_entities / limits.partition_entities,
        money=money(demand, prices, months=months),
    )


UTF16: Final = 2.0
"""Tables keep text in two bytes a character; what was counted is mostly one."""


def money(demand: Demand, prices: Prices, *, months: float = 1.0, tasks: float = MILLION) -> dict[str, float]:
    """Dollars for so many tasks, by what they are paid for; the rows are kept for so many months."""
    found = {
        "tables": (demand.table_requests + demand.submit_requests) * prices.table_requests,
        "queues": (demand.queue_requests + demand.empty_requests) * prices.queue_requests,
        "blobs": demand.blob_requests * prices.blob_requests,
    }
    found = {name: price * tasks / 10_000 for name, price in found.items()}
    if demand.stored_bytes is not None:
        gigabytes = demand.stored_bytes * UTF16 * tasks / 1e9
        found["stored"] = gigabytes * prices.table_gigabyte_month * months
    found["total"] = sum(found.values())
    return found


def run_seconds(
    demand: Demand, limits: Limits, latencies: Latencies, *, graphs: int = 1, offered: float = math.inf
) -> tuple[str, float]:
    """What binds, and how long so many graphs of this shape run side by side on one account.

    A finite run finds every bucket full, and has a burst for nothing. offered: tasks a second that the workers would
    do if nothing refused them.
    """
    tasks = demand.tasks * graphs

    def filled(work: float, rate: float) -> float:
        return max(0.0, work - rate * limits.burst_seconds) / rate

    found = {
        PARTITION: filled(demand.tasks * demand.entities, limits.partition_entities),
        ACCOUNT: filled(tasks * demand.requests, limits.account_requests),
        "offered": tasks / offered,
    }
    for name, messages in demand.messages.items():
        found[queue_bound(name)] = filled(tasks * messages, limits.queue_messages)
    for name, rate in graph_bounds(demand, limits, latencies).items():
        if name in (LINE, PATH):
            found[name] = demand.tasks / rate
    return max(found.items(), key=lambda each: each[1])
