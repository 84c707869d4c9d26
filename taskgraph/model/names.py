"""Names that several rooms share: the queues of a store, and the partitions and keys of its indexes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from taskgraph.model.priorities import NORMAL

if TYPE_CHECKING:
    from taskgraph.model.messages import Message

OWN: Final = "0"  # begins the names of queues that one process keeps for itself; no prefix of a store does

_LEVEL_WORDS: Final = {"highest": "max", "high": "high", "low": "low", "lowest": "min"}


@dataclass(frozen=True, slots=True)
class QueueNames:
    """Names of the queues of one installation. per_operation: each kind of event has a queue of its own."""

    prefix: str = "taskgraph"
    per_operation: bool = False

    @property
    def events(self) -> str:
        """The queue of everything that handlers take, unless each kind has its own."""
        return f"{self.prefix}-events"

    def events_of(self, number: int) -> str:
        """One of several queues of events, each of which has graphs of its own; the first is the common one."""
        return f"{self.events}-{number}" if number else self.events

    @property
    def schedules(self) -> str:
        """No queue: what is rung when a schedule is new or changed."""
        return f"{self.prefix}-schedules"

    @property
    def received(self) -> tuple[str, ...]:
        """The queues that handlers receive from: always the common one too, for messages of an earlier setting."""
        if not self.per_operation:
            return (self.events,)
        from taskgraph.model.messages import EVENT_TYPES  # here: what only looks at a graph knows no messages

        return (self.events, *(f"{self.prefix}-{kind}" for kind in EVENT_TYPES))

    def of(self, message: "Message") -> str:
        if not self.per_operation:
            return self.events
        from taskgraph.model.messages import type_of

        return f"{self.prefix}-{type_of(message)}"

    def work(self, target: str, level: str = NORMAL) -> str:
        """The queue of a target's workers for one level; with the longest target it is as long as a name may be."""
        return f"{self.prefix}-{_LEVEL_WORDS.get(level, 'work')}-{target}"

    def poison(self, queue: str) -> str:
        return f"{queue}-poison"


LIVE: Final = "index:live"  # partition that names every graph which the sweep must look at; `:` is in no graph id
ALL: Final = "index:graphs"  # partition that lists every graph, newest first
POISON: Final = "index:poison"  # partition of messages that were set aside
TOMBSTONES: Final = "index:tombstones"  # partition of deleted graphs, by when their ids may be given again
CACHE: Final = "index:cache"  # partition of runs that may stand for others, by what they were made of
LEADS: Final = "index:leads"  # partition of the leads over queues of events
TOKENS: Final = "index:tokens"  # partition of what opens the HTTP API, by name
OLD_TASKS: Final = "index:taskcluster"  # partition of taskIds of old TaskCluster clients: the graph of each
KEEPING: Final = "index:keeping"  # partition of places: how far looks for old graphs and cached runs have come

_NEWEST_FIRST: Final = 10**15


def listing_key(graph_id: str, created: datetime) -> str:
    """Row key in the list of all graphs: newest first."""
    return f"{_NEWEST_FIRST - int(created.timestamp() * 1000):015d}:{graph_id}"


def listed_by(key: str) -> datetime:
    """When a graph was created at the latest, whose key in the list of all graphs this is."""
    return datetime.fromtimestamp((_NEWEST_FIRST - int(key.partition(":")[0]) + 1) / 1000, UTC)


def tombstone_key(graph_id: str, until: datetime) -> str:
    """Row key in the list of tombstones: the first that ends first."""
    return f"{int(until.timestamp() * 1000):015d}:{graph_id}"
