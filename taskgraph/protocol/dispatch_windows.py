"""What is ready and has not been sent yet: a window for each queue of workers, shared by graphs in turn.

Queues have no order but that of coming. So a process sends no more than workers take within a few seconds, and
remembers the rest, which it sends as results come in: of each graph its part. What is remembered is a hint: the rows
stand pending, and the sweep sends what is forgotten.

A window grows when a quarter of it comes back within a quarter of a second, and when a look at a row shows that workers
have taken what was sent. It shrinks when half of it takes longer than some seconds while workers have not taken all.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskgraph.model import limits
from taskgraph.model.ids import value

Queue = tuple[str, str]
"""A target and a level."""

_QUICK_SECONDS: Final = 0.5  # half a window comes back within it: it is too narrow
_SLOW_SECONDS: Final = 3.0  # half a window takes longer: it is wider than it need be
_GROWS: Final = 4
_LOOK_SECONDS: Final = 2.0  # between two looks whether workers have taken what was sent; doubled while they have not
_LOOK_SECONDS_MAX: Final = 16.0
_STALE_SECONDS: Final = 120.0  # since anything of a graph was sent or came back
_STEADY_SECONDS: Final = 60.0  # a window that was too narrow does not shrink for so long


@value
class ReadyBatch:
    """Tasks of one graph to be sent to one queue now: (taskId, run) of each."""

    graph: str
    target: str
    level: str
    tasks: tuple[tuple[str, int], ...]


@value
class Sample:
    """A task that was sent and has not come back: its row shows whether workers have come so far."""

    queue: Queue
    graph: str
    task_id: str
    run: int


@dataclass(slots=True)
class _Lane:
    """Tasks of one graph for one queue, taskId -> run, in order."""

    touched: float = 0.0
    sent: dict[str, int] = field(default_factory=dict)
    unsent: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Window:
    """One queue. lanes: by graph, the one whose turn it is first."""

    size: int
    lanes: dict[str, _Lane] = field(default_factory=dict)
    results: int = 0
    since: float = 0.0  # of `results`
    look: float = 0.0  # when to look next
    pause: float = _LOOK_SECONDS
    steady: float = 0.0
    fed: bool = False  # the last look said that workers have not taken all

    @property
    def waits(self) -> bool:
        return any(lane.unsent for lane in self.lanes.values())

    def lane(self, graph: str, now: float) -> _Lane:
        """That of a graph, made if need be. Others that were idle for long are dropped."""
        lane = self.lanes.get(graph)
        if lane is None:
            for name, old in list(self.lanes.items()):
                if not old.unsent and now - old.touched > _STALE_SECONDS:
                    del self.lanes[name]
            lane = self.lanes[graph] = _Lane()
        lane.touched = now
        return lane

    def part(self, new: _Lane | None = None) -> int:
        """How much of the window each graph has that has anything there. new: it is about to."""
        graphs = sum(bool(lane.sent or lane.unsent or lane is new) for lane in self.lanes.values())
        return max(limits.WINDOW_MIN, self.size // max(1, graphs))


class Windows:
    """The windows of one process. start, most: how wide they are at first, and at most.

    more: graphs of which not all could be remembered: their rows are to be looked at again.
    """

    def __init__(self, *, start: int = limits.WINDOW_START, most: int = limits.WINDOW_MAX) -> None:
        self._start = start
        self._most = most
        self._windows: dict[Queue, _Window] = {}
        self._unsent = 0
        self.more: set[str] = set()

    def has(self, graph: str) -> bool:
        """Whether anything of a graph was sent, or waits, as far as is known."""
        for window in self._windows.values():  # noqa: SIM110  (asked once a commit: a generator is dear)
            if graph in window.lanes:
                return True
        return False

    @property
    def waits(self) -> bool:
        return self._unsent > 0 or bool(self.more)

    def unsent(self, graph: str) -> int:
        return sum(len(lane.unsent) for lane in self._lanes(graph))

    @property
    def graphs(self) -> list[str]:
        """Those of which something is to be sent later."""
        held = {graph: None for window in self._windows.values() for graph, lane in window.lanes.items() if lane.unsent}
        return list(held | dict.fromkeys(self.more))

    def knows(self, graph: str, task_id: str, run: int) -> bool:
        """Whether this run was sent by this process, or will be."""
        return any(run in (lane.sent.get(task_id), lane.unsent.get(task_id)) for lane in self._lanes(graph))

    def will_send(self, graph: str, task_id: str, run: int) -> bool:
        """Whether this run is to be sent later, or may be among those that are to be looked at again."""
        if graph in self.more:
            return not any(lane.sent.get(task_id) == run for lane in self._lanes(graph))
        return any(lane.unsent.get(task_id) == run for lane in self._lanes(graph))

    def offer(
        self, graph: str, queue: Queue, tasks: Sequence[tuple[str, int]], now: float
    ) -> tuple[list[tuple[str, int]], int]:
        """Tasks that are ready: those to be sent now, and how many have been put by.

        What was sent already is sent again, as a reminder; what is remembered at another level is not there any more.
        """
        window = self._windows.get(queue)
        if window is None:
            window = self._windows[queue] = _Window(self._start, since=now, look=now + _LOOK_SECONDS)
        lane = window.lane(graph, now)
        if not window.waits:  # from here on it matters how long it takes
            window.results, window.since, window.look, window.pause = 0, now, now + _LOOK_SECONDS, _LOOK_SECONDS
        send: list[tuple[str, int]] = []
        put_by = 0
        part = window.part(lane)
        for task_id, run in tasks:
            if lane.sent.get(task_id) == run:
                send.append((task_id, run))
            elif lane.unsent.get(task_id) != run:
                self._take_off(graph, task_id)
                if len(lane.sent) < part and not lane.unsent:
                    lane.sent[task_id] = run
                    send.append((task_id, run))
                elif self._unsent >= limits.UNSENT_MAX:
                    self.more.add(graph)
                else:
                    put_by += 1
                    self._unsent += 1
                    lane.unsent[task_id] = run
        return send, put_by

    def was_sent(self, graph: str, queue: Queue, tasks: Iterable[tuple[str, int]], now: float) -> None:
        """Another process has sent these."""
        window = self._windows.setdefault(queue, _Window(self._start, since=now, look=now + _LOOK_SECONDS))
        lane = window.lane(graph, now)
        for task_id, run in tasks:
            self._take_off(graph, task_id)
            lane.sent[task_id] = run

    def on_results(self, graph: str, task_ids: Iterable[str], now: float) -> list[ReadyBatch]:
        """These have begun or ended. Gives what is to be sent in their place, of whatever graph."""
        touched: dict[Queue, _Window] = {}
        results = list(task_ids)
        for queue, window in self._windows.items():
            lane = window.lanes.get(graph)
            if lane is None:
                continue
            lane.touched = now
            for task_id in results:
                if lane.sent.pop(task_id, None) is not None:
                    window.results += 1
                    touched[queue] = window
                elif lane.unsent.pop(task_id, None) is not None:
                    self._unsent -= 1
            if not lane.sent and not lane.unsent:
                del window.lanes[graph]
                touched[queue] = window  # the others have more room now
        batches: list[ReadyBatch] = []
        for queue, window in touched.items():
            if not window.waits:
                continue
            took = now - window.since
            if 4 * window.results >= window.size and took < _QUICK_SECONDS / 2:
                window.size = min(window.size * _GROWS, self._most)
                window.results, window.since = 0, now
            elif 2 * window.results >= window.size:
                if took < _QUICK_SECONDS:
                    window.size = min(window.size * _GROWS, self._most)
                elif took > _SLOW_SECONDS and window.fed and now >= window.steady:
                    window.size = max(window.size // 2, limits.WINDOW_MIN)
                window.results, window.since = 0, now
            batches += self._fill(queue, window)
        return batches

    def forget(self, graph: str) -> None:
        self.more.discard(graph)
        for window in self._windows.values():
            if (lane := window.lanes.pop(graph, None)) is not None:
                self._unsent -= len(lane.unsent)

    def returned(self, batch: ReadyBatch) -> None:
        """It could not be sent: it goes first next time."""
        window = self._windows.get((batch.target, batch.level))
        lane = window.lanes.get(batch.graph) if window is not None else None
        if lane is not None:
            back = {task_id: run for task_id, run in batch.tasks if lane.sent.pop(task_id, None) is not None}
            self._unsent += len(back)
            lane.unsent = {**back, **lane.unsent}

    def to_look_at(self, now: float) -> list[Sample]:
        """A task in the midst of each queue that waits and is due for a look."""
        samples: list[Sample] = []
        for queue, window in self._windows.items():
            if not window.waits or now < window.look:
                continue
            for graph, lane in window.lanes.items():
                if lane.sent and lane.unsent:
                    task_id = list(lane.sent)[len(lane.sent) // 2]
                    samples.append(Sample(queue, graph, task_id, lane.sent[task_id]))
                    break
            window.look = now + window.pause
        return samples

    def looked(self, sample: Sample, *, waits: bool, now: float) -> list[ReadyBatch]:
        """Whether the sampled task still waits for a worker. Gives what is to be sent now."""
        window = self._windows.get(sample.queue)
        lane = window.lanes.get(sample.graph) if window is not None else None
        if window is None or lane is None:
            return []
        window.fed = waits
        if waits:
            window.pause = min(window.pause * 2, _LOOK_SECONDS_MAX)
            window.look = now + window.pause
            return []
        # Workers have come as far as that: they want more.
        if lane.sent.get(sample.task_id) == sample.run:  # else it has come back since the look began
            for task_id in list(lane.sent):
                del lane.sent[task_id]
                if task_id == sample.task_id:
                    break
        window.size = min(window.size * 2, self._most)
        window.pause = _LOOK_SECONDS
        window.look, window.steady = now + _LOOK_SECONDS, now + _STEADY_SECONDS
        return self._fill(sample.queue, window)

    def fill(self) -> list[ReadyBatch]:
        return [batch for queue, window in self._windows.items() if window.waits for batch in self._fill(queue, window)]

    def _lanes(self, graph: str) -> Iterator[_Lane]:
        for window in self._windows.values():
            if (lane := window.lanes.get(graph)) is not None:
                yield lane

    def _take_off(self, graph: str, task_id: str) -> None:
        """It goes to another queue, or for another run."""
        for lane in self._lanes(graph):
            lane.sent.pop(task_id, None)
            if lane.unsent.pop(task_id, None) is not None:
                self._unsent -= 1

    def _fill(self, queue: Queue, window: _Window) -> list[ReadyBatch]:
        """Let every graph in turn fill its part, by half of it at least: large messages cost less."""
        target, level = queue
        batches: list[ReadyBatch] = []
        part = window.part()
        for graph in list(window.lanes):
            lane = window.lanes[graph]
            room = part - len(lane.sent)
            if not lane.unsent or room <= 0 or (2 * room < part and room < len(lane.unsent)):
                continue
            tasks = tuple(itertools.islice(lane.unsent.items(), room))
            for task_id, run in tasks:
                del lane.unsent[task_id]
                lane.sent[task_id] = run
            self._unsent -= len(tasks)
            batches.append(ReadyBatch(graph, target, level, tasks))
            window.lanes[graph] = window.lanes.pop(graph)  # others go first next time
        return batches
