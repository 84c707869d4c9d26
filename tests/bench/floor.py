"""The floor: the smallest honest program that keeps taskgraph's promises for one graph on one machine, to compare with.

What this room is for: `python -m tests.bench.floor SHAPE FILE` writes the graph into a file of SQLite, of the embedded
store's own schema and pragmas, then runs it out of the file, and prints what both cost, as JSON.

What it promises, as taskgraph does:
- A task has a row. It is claimed by a conditional write before it runs, and completed by another one that counts only
  under that claim. A commit writes up to 400 rows or none.
- Completions, counting down of dependents, claims of what becomes ready, and the facts about all of them (a row of the
  journal) go into one commit.
- Nothing is known but by rows: a process that dies goes on from the file, and one that meets another's write reads
  anew. So a run may be repeated, and none is lost.

What it leaves out: rows of bounded size (a wide task has all its dependents in one row), limits, priorities, pauses,
deadlines, retries, edits, workers elsewhere, checks of sizes, waiting for others, a loop of events.
"""

import argparse
import base64
import gc
import hashlib
import json
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from taskgraph.storage.sqlite import database
from tests.bench.shapes import Requirements, shape

CHANGES_MAX: Final = 400
CLAIMED_MAX: Final = 256  # in hand of the one worker, as of taskgraph's where runs take no time
LEASE_SECONDS: Final = 60.0
LOOK_AT_LOG_EVERY: Final = 64  # commits
PARTITION: Final = "floor"
TABLE: Final = 1

_INSERT: Final = "INSERT INTO row (tab, partition, key, etag, columns) VALUES (?, ?, ?, ?, ?)"
_MERGE: Final = """UPDATE row SET etag = ?, columns = json_patch(columns, ?)
    WHERE tab = ? AND partition = ? AND key = ? AND etag = ?"""
_RANGE: Final = "SELECT key, etag, columns FROM row WHERE tab = ? AND partition = ? AND key >= ? AND key < ?"

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Conflict(Exception):
    """Another process has written a row of this commit: nothing was written."""


@dataclass(slots=True)
class Task:
    """What a process knows of a task's row."""

    key: str
    etag: int
    label: str
    definition: str
    state: str
    left: int  # requirements that have not completed
    dependents: list[str]
    passed: int  # dependents that have been counted down, in order
    claim: str = ""


def open_file(path: Path) -> sqlite3.Connection:
    """The file of the embedded store, made if it is missing; with nothing else at work in it."""
    database.make(path)
    return database.connect(path, "normal")


def fresh_id() -> str:
    return base64.urlsafe_b64encode(os.urandom(16))[:22].decode("ascii")


def submit(connection: sqlite3.Connection, requirements: Requirements, payload: Mapping[str, Any]) -> None:
    """Write the rows of a graph, `CHANGES_MAX` in each commit, in the order of their keys."""
    keys = {
        label: "task:" + base64.urlsafe_b64encode(hashlib.sha256(label.encode()).digest()[:16])[:22].decode("ascii")
        for label in requirements
    }
    dependents: dict[str, list[str]] = {label: [] for label in requirements}
    for label, requires in requirements.items():
        for each in requires:
            dependents[each].append(keys[label])
    now, definition = datetime.now(UTC).isoformat(), _encode({"payload": payload})
    rows = [("task-graph", {"state": "running", "tasks": len(requirements), "submitted": now})]
    for label, requires in requirements.items():
        columns = {
            "schema": 1,
            "label": label,
            "task": definition,
            "target": "default",
            "state": "unscheduled" if requires else "pending",
            "run": 0,
            "requires": _encode([keys[each] for each in requires]),
            "requiresLeft": len(requires),
            "dependents": _encode(dependents[label]),
        }
        rows.append((keys[label], columns))
    rows.sort()
    for start in range(0, len(rows), CHANGES_MAX):
        operation = fresh_id()
        connection.execute("BEGIN IMMEDIATE")
        part = [
            (TABLE, PARTITION, key, 1, _encode({**columns, "operation": operation}))
            for key, columns in rows[start : start + CHANGES_MAX]
        ]
        connection.executemany(_INSERT, part)
        connection.execute("COMMIT")


class Floor:
    """One process that handles and works.

    execute: runs a task, by its definition; gives its resolution. worker: what runs under this name and has not been
    reported is run again.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, execute: Callable[[str], dict[str, Any]], worker: str
    ) -> None:
        self._connection = connection
        self._execute = execute
        self._log = path.with_name(path.name + "-wal")
        self._worker = worker
        self.commits = self.conflicts = 0

    def run(self) -> None:
        """Run the graph to its end, from whatever the file holds. Raises what `execute` raises."""
        while True:
            self._read()
            try:
                while self._completed < len(self._tasks):
                    self._step()
            except Conflict:
                self.conflicts += 1
                continue  # what has been run and not committed is run again
            return

    def _rows(self, first: str, last: str) -> Iterable[tuple[str, int, dict[str, Any]]]:
        for key, etag, text in self._connection.execute(_RANGE, (TABLE, PARTITION, first, last)):
            yield key, etag, json.loads(text)

    def _read(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._ready: deque[Task] = deque()
        self._passing: deque[Task] = deque()
        self._ended: deque[tuple[Task, dict[str, Any], str]] = deque()
        self._completed = 0
        now = datetime.now(UTC).isoformat()
        for key, etag, row in self._rows("task:", "task;"):
            task = Task(
                key,
                etag,
                row["label"],
                row["task"],
                row["state"],
                row["requiresLeft"],
                json.loads(row["dependents"]),
                row.get("passed", 0),
            )
            self._tasks[key] = task
            if task.state == "completed":
                self._completed += 1
                if task.passed < len(task.dependents):
                    self._passing.append(task)
            elif task.state == "pending" or (
                task.state == "running" and (row["worker"] == self._worker or row["leaseUntil"] < now)
            ):
                self._ready.append(task)
        ((_, self._graph_etag, _),) = self._rows("task-graph", "task-grapi")
        self._sequence = 1 + sum(1 for _ in self._rows("event:", "event;"))

    def _step(self) -> None:
        """One commit: what has ended, what follows from it, and claims of what is ready; then run what was claimed."""
        moment = datetime.now(UTC)
        now, lease = moment.isoformat(), (moment + timedelta(seconds=LEASE_SECONDS)).isoformat()
        operation = fresh_id()
        changes: dict[str, dict[str, Any]] = {}
        facts: list[dict[str, Any]] = []
        claimed: list[Task] = []
        room = CHANGES_MAX - 2  # the journal's row, and the graph's

        def claim(task: Task) -> None:
            task.claim = f"{operation}{len(claimed)}"
            changes.setdefault(task.key, {}).update(
                state="running", claim=task.claim, worker=self._worker, started=now, leaseUntil=lease, pendingSince=now
            )
            claimed.append(task)

        while self._ended and len(changes) < room:
            task, resolution, ended = self._ended.popleft()
            changes[task.key] = {"state": "completed", "resolved": ended, "resolution": _encode(resolution)}
            facts.append({"event": "task-completed", "task": task.key[5:], "label": task.label, "run": 0})
            self._completed += 1
            self._passing.appendleft(task)  # before what is half way: it is written in this commit anyway
        while self._passing and len(changes) < room and len(claimed) < CLAIMED_MAX:
            task = self._passing[0]
            for key in task.dependents[task.passed :]:
                if len(changes) >= room - 1 or len(claimed) >= CLAIMED_MAX:
                    break
                dependent = self._tasks[key]
                dependent.left -= 1
                changes.setdefault(key, {})["requiresLeft"] = dependent.left
                task.passed += 1
                if not dependent.left:
                    claim(dependent)
            changes.setdefault(task.key, {})["passed"] = task.passed
            if task.passed < len(task.dependents):
                break
            self._passing.popleft()
        while self._ready and len(changes) < room and len(claimed) < CLAIMED_MAX:
            claim(self._ready.popleft())
        if not changes:
            raise RuntimeError("what is left is in the hands of others, or waits for itself")
        self._commit(changes, facts, now, operation)
        for task in claimed:
            resolution = self._execute(task.definition)
            self._ended.append((task, resolution, datetime.now(UTC).isoformat()))

    def _commit(
        self, changes: dict[str, dict[str, Any]], facts: list[dict[str, Any]], now: str, operation: str
    ) -> None:
        """Raises Conflict."""
        tasks = self._tasks
        merges = []
        for key, columns in changes.items():
            columns["operation"] = operation
            etag = tasks[key].etag
            merges.append((etag + 1, _encode(columns), TABLE, PARTITION, key, etag))
        if self._completed == len(tasks):
            columns = {"state": "finished", "finished": now, "operation": operation}
            merges.append((self._graph_etag + 1, _encode(columns), TABLE, PARTITION, "task-graph", self._graph_etag))
            facts.append({"event": "graph-finished"})
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.executemany(_MERGE, merges).rowcount != len(merges):
                raise Conflict
            if facts:
                journal = {
                    "sequence": self._sequence,
                    "time": now,
                    "kinds": " ".join(dict.fromkeys(fact["event"] for fact in facts)),
                    "events": _encode(facts),
                    "completed": self._completed,
                    "operation": operation,
                }
                key = f"event:{self._sequence:012}"
                connection.execute(_INSERT, (TABLE, PARTITION, key, 1, _encode(journal)))
                self._sequence += 1
        except sqlite3.IntegrityError as error:
            connection.execute("ROLLBACK")
            raise Conflict from error  # another has written this number of the journal
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        for key in changes:
            tasks[key].etag += 1
        self.commits += 1
        if not self.commits % LOOK_AT_LOG_EVERY and self._log.stat().st_size > database.WAL_PAGES * 4096:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def noop(_: str) -> dict[str, Any]:
    return {"failed": False, "exitCode": 0}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.floor", description=__doc__)
    parser.add_argument("shape")
    parser.add_argument("file", type=Path, help="of SQLite; it must not be there")
    options = parser.parse_args()
    if options.file.exists():
        parser.error(f"{options.file} is there already")
    requirements = shape(options.shape).make()
    gc.disable()  # nothing of this is part of a cycle, and taskgraph looks seldom, too
    connection = open_file(options.file)
    marks = [time.process_time()]
    submit(connection, requirements, {})
    marks.append(time.process_time())
    floor = Floor(connection, options.file, noop, "worker-1")
    began = time.monotonic()
    floor.run()
    marks.append(time.process_time())
    seconds = time.monotonic() - began
    connection.close()
    told = {"tasks": len(requirements), "submission": marks[1] - marks[0], "run": marks[2] - marks[1]}
    print(json.dumps({**told, "seconds": seconds, "commits": floor.commits}))


if __name__ == "__main__":
    main()
