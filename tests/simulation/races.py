"""Which races a history has reached: a run that never met what it is for proves nothing.

Each race has an id, and a plain statement of what must be seen in a history for it to count as reached. The watch is
told of every call, commit, answer and death in a world, and counts; it never changes what happens.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskgraph.documents.canonical import content_hash
from taskgraph.engine.handlers import Handled
from taskgraph.model.errors import Conflict
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.names import LIVE
from taskgraph.model.timing import not_yet_seconds
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.runs import Claim, Completed, Failed
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Row
from tests.simulation.invariants import FAILED_FOR_GOOD, is_cancelled

if TYPE_CHECKING:
    from tests.simulation.world import Actor, World

PAUSE_SECONDS: Final = 60.0

RACES: Final = {
    "R01": "a process died after the commit that made a task pending, and before it sent its message",
    "R02": "a result was handled to its end, not acknowledged, delivered again, and found repeated",
    "R03": "two handlers held the same completion at once",
    "R04": "a result arrived after a later run had begun",
    "R05": "a task completed while an extension that links to it was under way",
    "R06": "a task completed while its new dependent had no row yet",
    "R07": "the graph finished while an extension of it was asked for",
    "R08": "an extension of a graph that was not running was refused",
    "R10": "two commits took requirements off one row at once, and one had to repeat",
    "R11": "a commit was applied and its answer lost, or a conflict",
    "R12": "one send put two messages",
    "R13": "a claim named a run of a task that stood pending again, in a later run",
    "R14": "a submitter died with its graph half written",
    "R15": "a handler died while a relay stood pending between two commits",
    "R16": "rows of one read were written by somebody else before all of them were read",
    "R17": "a query answered in part, with a continuation",
    "R20": "the lease of an event message ended while it was handled; the acknowledgement came too late",
    "R21": "the same of a work message",
    "R22": "a run was given up before the end of its lease, by a clock that was ahead",
    "R23": "a worker whose lease was lost reported all the same",
    "R24": "a worker died before its claim, after it, or after its report",
    "R25": "a work message came for a run that was over or taken",
    "R26": "a claim, a result, a rerun or an extension met the fence or the sweep of a cancel, and one had to repeat",
    "R27": "a result came for a task that its deadline had ended, or a claim found it past its time",
    "R28": "a process died that had to do with a task whose time had not come, and left it to the sweep",
    "R29": "a failure arrived after a later run had completed",
    "R30": "storage refused three calls in a row",
    "R35": "a process died after the commit that finished the graph, and before it said so",
    "R36": "the result that finished the graph was handled again, and its end told again",
    "R37": "a graph that had been blocked finished",
    "R38": "two commits wanted the same number of the journal, and one had to repeat",
    "R39": "two handlers spent the same rerun at once, and one had to repeat",
    "R40": "a failure was delivered again after its rerun stood pending",
    "R41": "a failure of an earlier run arrived when the graph had finished",
    "R42": "a task was added below one that had failed for good, or was skipped, and had told its dependents",
    "R43": "a work message that was under way came for a task that had been held back meanwhile",
    "R44": "two sweeps looked at the graph at once",
    "R45": "two submitters wrote the graph at once",
    "R46": "a submitter or extender died after a commit, and before it was answered",
    "R49": "two commits wrote the graph row at once, and one had to repeat",
    "R50": "a message came back while its first handler was repeating a commit",
    "R53": "the same work message was sent twice",
    "R54": "a process that had stood still for a minute in the middle of a transition went on to commit",
    "R55": "a process was told to stop inside a storage call",
    "R59": "task and graph changed together: a task failed for good, or the last one completed",
    "R61": "an extension was accepted while the graph was blocked",
    "R62": "an extension that waited for a paused graph to be resumed was made",
    "R63": "a task that had failed for good was edited",
}
"""Race id -> what must be seen in histories of `world`."""

BESIDE: Final = {
    "R18": "a message whose handler always raises was set aside, and nothing else was",
    "R19": "a message was lost, as one lost by age would be; none has an age",
    "R21 heartbeat": "a heartbeat was ended while its renewal was under way, and the acknowledgement came too late",
    "R28 fire": "a process died in a fire of a schedule: begun, half submitted, or submitted and not yet said to be",
    "R31": "a queue was deleted with messages in it, or all calls were refused for longer than a lease; no poison",
    "R33": "a malformed message was set aside, whole, and nobody else touched",
    "R34": "a message or row past the limits of the store was set aside, or refused",
    "R51": "an extension with a cycle or an unknown requirement was refused or set aside, without a trace",
    "R57": "a process died while it set a message aside, between its row and its deletion",
}
"""Race id -> what must be seen in histories of `processes` or `timers`, or at `desks`."""


@dataclass(frozen=True)
class Elsewhere:
    """A race that no counter shows. tests: that show it; because: why there is none here, or none at all."""

    because: str
    tests: tuple[str, ...] = ()


ELSEWHERE: Final = {
    "R09": Elsewhere(
        "a completed task is final; nothing reruns it",
        (
            "tests/scenarios/test_lineage_successor.py::test_successor_rerun_of_a_completed_task",
            "tests/scenarios/test_harmless_messages.py::test_nothing_old_moves_a_finished_graph",
        ),
    ),
    "R32": Elsewhere(
        "needs two versions of the program",
        (
            "tests/upgrade/test_upgrade.py::test_both_take_turns",
            "tests/scenarios/test_poison_and_consumer.py::test_columns_that_this_version_does_not_know_survive",
            "tests/scenarios/test_poison_and_consumer.py::test_rows_of_a_newer_schema_are_left_to_who_knows_them",
            "tests/simulation/test_desks.py::test_with_a_fault_at_some_calls",
        ),
    ),
    "R47": Elsewhere(
        "deletion has histories of its own",
        (
            "tests/simulation/test_deleted.py::test_nothing_is_left_of_a_deleted_graph_and_nothing_comes_back",
            "tests/scenarios/test_retention.py::test_messages_about_a_deleted_graph_are_let_go",
            "tests/scenarios/test_retention.py::test_a_submitter_who_slept_through_it_is_refused_and_leaves_nothing",
        ),
    ),
    "R48": Elsewhere(
        "deletion has histories of its own",
        (
            "tests/scenarios/test_retention.py::test_the_id_is_not_given_again_before_the_tombstone_ends",
            "tests/scenarios/test_retention.py::test_a_copy_that_slept_takes_nothing_from_a_graph_of_the_same_id",
        ),
    ),
    "R52": Elsewhere(
        "an answer of the real service",
        (
            "tests/unit/test_storage_azure.py::test_a_failure_inside_a_batch_is_unclear",
            "tests/contract/test_tables.py::test_one_change_too_many_is_refused",
        ),
    ),
    "R56": Elsewhere(
        "a mistake in the program: every warning fails the run that counts",
        (
            "tests/simulation/test_reach.py::test_a_coroutine_that_nobody_awaits_fails_the_run",
            "tests/scenarios/test_poison_and_consumer.py::test_a_message_is_acknowledged_last",
        ),
    ),
    "R58": Elsewhere("not applicable: an account that fails over loses rows, and no protocol above it can tell"),
    "R60": Elsewhere("not applicable: of the emulator alone; tests/azurite.py ends it by SIGTERM"),
}
"""Race id -> where else it is shown, or why not."""

ALL_IDS: Final = tuple(f"R{number:02}" for number in range(1, 64))


class Watch:
    """The counters of one history."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.met: Counter[str] = Counter()
        self.written: list[tuple[object, frozenset[str]]] = []
        self.storm = 0
        self._sent: set[str] = set()
        self._outside: dict[str, tuple[frozenset[str], Mapping[str, Sequence[str]]]] = {}
        for extension in world.extensions:
            inside = extension.tasks
            outside = {each for node in inside.values() for each in node.requires if each not in inside}
            below = {
                each: [row_key(task_id_of(world.graph_id, label)) for label, n in inside.items() if each in n.requires]
                for each in outside
            }
            self._outside[content_hash(extension)] = (frozenset(outside), below)

    # --- told by the world

    def spawned(self, actor: "Actor") -> None:
        """Somebody begins."""
        if actor.name in ("sweep", "submit") and any(other.name == actor.name for other in self._world.actors):
            self.met["R44" if actor.name == "sweep" else "R45"] += 1

    def unavailable(self) -> None:
        """Storage refused a call."""
        self.storm += 1
        self.met["R30"] += self.storm == 3

    def read(self, actor: "Actor", keys: Sequence[str], commits: int) -> None:
        """Rows were read, while others may have written since `commits`."""
        if commits < len(self.written) and len(keys) > 3:
            wanted = set(keys)
            self.met["R16"] += any(who is not actor and wanted & what for who, what in self.written[commits:])

    def before_commit(self, actor: "Actor", partition: str, changes: Sequence[Change]) -> Mapping[str, str]:
        """A commit is tried; gives the states of its rows."""
        if partition != self._world.graph_id:
            return {}
        if actor.idle_seconds >= PAUSE_SECONDS:
            self.met["R54"] += 1
        rows = self._world.rows
        return {c.key: str(rows[c.key].columns.get("state")) for c in changes if c.key in rows}

    def conflict(self, actor: "Actor", partition: str, changes: Sequence[Change], conflict: Conflict) -> None:
        """A condition of a commit did not hold."""
        if partition != self._world.graph_id or conflict.index is None:
            return
        actor.conflicts += 1
        change = changes[conflict.index]
        columns = {} if isinstance(change, Delete) else change.columns
        merges = not isinstance(change, Insert)
        self.met["R26"] += self._cancels(changes) != self._cancelled(change.key)
        self.met["R10"] += merges and "requiresLeft" in columns
        self.met["R39"] += merges and "rerunsLeft" in columns
        self.met["R38"] += any(
            isinstance(c, Insert) and c.key.startswith("event:") and c.key in self._world.rows for c in changes
        )
        self.met["R49"] += merges and any(c.key == GRAPH for c in changes) and self._old(changes, GRAPH)

    def _cancels(self, changes: Sequence[Change]) -> bool:
        """Whether a commit is one of a cancel."""
        columns = [each.columns for each in changes if isinstance(each, Merge)]
        return any(
            each.get("state") == "cancelling"
            or each.get("cancel")
            or '"cancelled":true' in str(each.get("resolution", ""))
            for each in columns
        )

    def _cancelled(self, key: str) -> bool:
        """Whether a cancel has written this row."""
        if key not in self._world.rows:
            return False
        columns = self._world.rows[key].columns
        return bool(columns.get("cancel")) or columns.get("state") == "cancelling" or is_cancelled(columns)

    def _old(self, changes: Sequence[Change], key: str) -> bool:
        row = self._world.rows.get(key)
        return any(
            c.key == key and not isinstance(c, Insert) and row is not None and c.etag != row.etag for c in changes
        )

    def committed(self, actor: "Actor", partition: str, changes: Sequence[Change], before: Mapping[str, str]) -> None:
        """A commit was applied."""
        if partition == LIVE:
            actor.untold = False
        if partition != self._world.graph_id:
            return
        actor.commits += 1
        self.written.append((actor, frozenset(change.key for change in changes)))
        columns = {c.key: c.columns for c in changes if not isinstance(c, Delete)}
        states = {key: str(each["state"]) for key, each in columns.items() if "state" in each}
        tasks = {key: state for key, state in states.items() if key.startswith("task:")}
        actor.unsent |= "pending" in tasks.values()
        actor.untold |= states.get(GRAPH) == "finished"
        self.met["R59"] += GRAPH in states and bool(tasks)
        self.met["R42"] += any(map(self._is_added_below_a_failure, changes))
        for key, each in columns.items():
            if each.get("state") in ("accepted", "done") and before.get(key) == "staged" and self._extends(key):
                self.met["R61"] += before.get(GRAPH) == "blocked"
                self.met["R62"] += each.get("waitsFor") == ""
            self.met["R63"] += key.startswith("task:") and "edited" in each and before.get(key) in FAILED_FOR_GOOD
        for key, state in tasks.items():
            if state == "completed":
                self._completed(key)
            if state == "pending" and "retriesLeft" in columns[key]:
                lease_until = self._world.rows[key].columns.get("leaseUntil")
                self.met["R22"] += isinstance(lease_until, datetime) and lease_until > self._world.clock.now()
        if states.get(GRAPH) == "finished":
            self.met["R37"] += "blocked" in self._world.history
            self.met["R07"] += any(row.columns.get("state") == "staged" for row in self._requests())

    def _is_added_below_a_failure(self, change: Change) -> bool:
        """Whether a task that has failed for good, or was skipped, and has told its dependents gets a new one."""
        if not self._world.goes_on or not isinstance(change, Merge) or "dependents" not in change.columns:
            return False
        row = self._world.rows.get(change.key)
        return row is not None and row.columns.get("state") in ("failed", "exception", "skipped")

    def _extends(self, key: str) -> bool:
        """Whether a row is the request of an extension, and not of an edit."""
        return str(self._world.rows[key].columns.get("digest")) in self._outside

    def _requests(self) -> list[Row]:
        rows = self._world.rows
        return [row for key, row in rows.items() if key.startswith("request:") and key.count(":") == 1]

    def _completed(self, key: str) -> None:
        rows = self._world.rows
        label = str(rows[key].columns["label"])
        for row in self._requests():
            outside, below = self._outside.get(str(row.columns.get("digest")), (frozenset(), {}))
            if label in outside and row.columns.get("state") in ("staged", "accepted"):
                self.met["R05"] += 1
                accepted = row.columns["state"] == "accepted"
                self.met["R06"] += accepted and any(each not in rows for each in below[label])

    def sent(self, actor: "Actor", queue: str, body: str) -> None:
        """A message was sent (and perhaps lost)."""
        if "-work-" in queue:
            actor.unsent = False
            self.met["R53"] += body in self._sent
            self._sent.add(body)

    def received(self, actor: "Actor", found: Sequence[Delivery]) -> None:
        """Messages were taken."""
        for delivery in found:
            for other in self._world.actors:
                if other is actor:
                    continue
                held = [each for each in other.in_hand if each.body == delivery.body]
                if held and '"task-completed"' in delivery.body:
                    self.met["R03"] += 1
                if other.conflicts and any(each.id == delivery.id for each in held):
                    self.met["R50"] += 1
        actor.in_hand.extend(found)

    def taken_over(self, actor: "Actor", delivery: Delivery) -> None:
        """An acknowledgement came too late."""
        self.met["R21" if "-work-" in delivery.queue else "R20"] += 1

    def claimed(self, answer: Answer) -> None:
        """A claim was answered."""
        item = answer.item
        self.met["R27"] += answer.outcome is Outcome.ENDED
        if isinstance(item, Claim) and answer.outcome is Outcome.STALE:
            self.met["R25"] += 1
            self.met["R43"] += "held back" in answer.reason
            known = self._world.rows.get(row_key(item.task_id))
            if known is None:
                return  # an edit has taken it away
            row = known.columns
            self.met["R13"] += row["state"] == "pending" and int(row["run"]) > item.run

    def handled(self, delivery: Delivery, handled: Handled) -> None:
        """An event message was handled."""
        for answer in handled.answers:
            item = answer.item
            if not isinstance(item, Completed | Failed):
                continue
            again = delivery.dequeue_count > 1
            self.met["R02"] += again and answer.outcome is Outcome.REPEATED
            self.met["R36"] += again and answer.outcome is Outcome.REPEATED and self._world.state() == "finished"
            if answer.outcome is not Outcome.STALE:
                continue
            row: Mapping[str, Any] = self._world.rows[row_key(item.task_id)].columns
            self.met["R27"] += '"code":"deadline-exceeded"' in str(row.get("resolution", ""))
            if int(row["run"]) > item.run:
                self.met["R04"] += 1
                runs = json.loads(str(row.get("runs", "[]")))
                self.met["R23"] += any(r["run"] == item.run and r["outcome"] == "lost" for r in runs)
                if isinstance(item, Failed):
                    self.met["R40"] += again or row["state"] == "pending"
                    self.met["R29"] += row["state"] == "completed"
                    self.met["R41"] += self._world.state() == "finished"

    def _waits(self) -> bool:
        """Whether the time of a task has not come."""
        now = self._world.clock.now()
        return any(
            row.columns.get("state") == "pending" and not_yet_seconds(row.columns.get, now) > 0
            for row in self._world.rows.values()
            if "notBefore" in row.columns
        )

    def crashed(self, actor: "Actor") -> None:
        """Somebody died."""
        states = self._world.invariants.states
        self.met["R01"] += actor.unsent and actor.name != "submit"
        self.met["R35"] += actor.untold
        if actor.name == "submit":
            self.met["R14"] += self._world.state() == "submitting" and actor.commits > 0
        if actor.name in ("submit", "extend"):
            self.met["R46"] += actor.commits > 0
        self.met["R28"] += (actor.unsent or actor.name == "worker") and self._waits()
        if actor.name == "worker" and actor.in_hand:
            self.met["R24"] += 1
            self.met[f"R24 {actor.stage}"] += 1
        if actor.name == "handler":
            self.met["R15"] += any(":" in each and state == "pending" for each, state in states.items())
