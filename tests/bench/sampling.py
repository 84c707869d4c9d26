"""Where the CPU time of this process goes, by samples of its stacks; and which steps hold its memory.

What this room is for: measuring from inside. A timer interrupts the process each 1 to 3 milliseconds. A sample counts
for the step that the stack is in, and for at least one interval; a longer call into C counts for as long as the CPU
clock of its thread says. Stacks that wait count nothing. The CPU time of each thread, which its clock knows exactly, is
shared out by what its samples count. So what samples cost makes all steps dearer alike, most where a process waits
much and is woken for nothing; more samples cost more than they show. It never imports taskgraph.

What a sample can miss: Python runs a signal's handler on the main thread, between two instructions, at a call, a loop
or the start of a function. So plain instructions may be charged to what is called next; and on another thread, Python's
own work to where that thread lets go of the interpreter's lock: the thread of SQLite shows statements alone.
"""

import gc
import linecache
import random
import signal
import sys
import threading
import time
import tracemalloc
from collections import Counter
from types import CodeType, FrameType
from typing import Any, Final

from tests.bench.steps import GARBAGE, OTHER, step_of

INTERVAL_SECONDS: Final = 0.002
STACK_KEPT: Final = 24  # frames of an allocation: deep enough to find a named one

WAITING: Final = frozenset({"select", "wait", "join", "_wait_for_tstate_lock", "_worker", "_write_to_self"})
"""Innermost functions of threads that wait: for files, events, locks, and for work in a pool of threads.

The last is where a thread wakes an event loop, and then waits for the lock of the interpreter. `select` may also look
and not wait, so on the main thread its time counts.
"""

_RAN: Final = 0.9  # of the time since the last sample: the thread has not waited, nor been made to
_PROMPT: Final = 300_000  # nanoseconds: a sample that comes later found the main thread off its processor

Place = tuple[str, str]
"""A step, and the function that the stack belongs to: `module:Class.function`."""


class Sampler:
    """Samples of one process, from `start` to `stop`; both on its main thread. Times in nanoseconds."""

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._interval = round(interval_seconds * 1e9)
        self._places: dict[int, tuple[CodeType, Place | None]] = {}  # by identity: a code's hash looks at all of it
        self._main = threading.get_ident()
        self._main_clock = time.pthread_getcpuclockid(self._main)
        self._busy = False

    def start(self) -> None:
        self._samples = self._own = self._garbage = 0  # how many, what they cost, and what looking for garbage cost
        self._weights: dict[int, Counter[Place]] = {}  # clock of a thread -> what its samples count
        self._spent: Counter[int] = Counter()  # CPU time by the clock of a thread
        self._clocks: dict[int, int] = {}  # what it said at the last sample
        self._last = time.monotonic_ns()
        self._process = time.process_time_ns()
        for thread in sys._current_frames():
            clock = time.pthread_getcpuclockid(thread)
            self._clocks[clock] = time.clock_gettime_ns(clock)
        gc.callbacks.append(self._collecting)
        self._handler = signal.signal(signal.SIGALRM, self._tick)
        self._wind()

    def stop(self) -> dict[str, Any]:
        """Seconds of CPU: `cpu` of all, by `steps` and `places`, `beside` the main thread, and of `sampling` itself."""
        self._tick(signal.SIGALRM, None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        cpu = time.process_time_ns() - self._process
        signal.signal(signal.SIGALRM, self._handler)
        gc.callbacks.remove(self._collecting)
        places: Counter[Place] = Counter({(GARBAGE, ""): self._garbage})
        for clock, weights in self._weights.items():
            share = self._spent[clock] / weights.total()
            places.update({place: weight * share for place, weight in weights.items()})
        steps: Counter[str] = Counter()
        for (step, _), spent in places.items():
            steps[step] += spent
        return {
            "cpu": cpu / 1e9,
            "steps": {step: spent / 1e9 for step, spent in steps.most_common() if spent},
            "places": {f"{step}: {name}": spent / 1e9 for (step, name), spent in places.most_common() if spent},
            "beside": sum(spent for clock, spent in self._spent.items() if clock != self._main_clock) / 1e9,
            "sampling": self._own / 1e9,
            "samples": self._samples,
        }

    def _tick(self, _: int, frame: FrameType | None) -> None:
        """frame: of the main thread; None at the end, when it counts for nothing any more."""
        if self._busy:  # it came into the middle of another one, or of a look for garbage
            self._wind()
            return
        self._busy = True
        began, now = time.thread_time_ns(), time.monotonic_ns()
        elapsed, self._last = now - self._last, now
        self._samples += 1
        self._count(self._main_clock, began, elapsed, frame, prompt=now - self._due < _PROMPT)
        stacks = sys._current_frames()
        del stacks[
            self._main
        ]  # this very frame: if it named itself, all below it would stay until garbage is looked for
        for thread, stack in stacks.items():
            clock = time.pthread_getcpuclockid(thread)  # it lives, for it has a stack
            self._count(clock, time.clock_gettime_ns(clock), elapsed, stack)
        self._wind()
        ended = time.thread_time_ns()
        self._own += ended - began
        self._clocks[self._main_clock] = ended
        self._busy = False

    def _wind(self) -> None:
        """Set the timer for the next sample: at no fixed pace, as what is measured may have the same one."""
        pause = self._interval * (0.5 + random.random())
        signal.setitimer(signal.ITIMER_REAL, pause / 1e9)
        self._due = time.monotonic_ns() + pause

    def _count(self, clock: int, now: int, elapsed: int, stack: FrameType | None, *, prompt: bool = True) -> None:
        spent = now - self._clocks.get(clock, 0)  # a thread that is new has begun at 0
        self._clocks[clock] = now
        if spent <= 0:
            return
        self._spent[clock] += spent
        ran = spent >= _RAN * elapsed
        waits = stack is None or (stack.f_code.co_name in WAITING and not (ran and clock == self._main_clock))
        # Who waits by now, or had to give way to other processes, is not where it used its time.
        if stack is not None and not waits and (prompt or ran):
            self._weights.setdefault(clock, Counter())[self._place(stack)] += max(spent, self._interval)

    def _place(self, frame: FrameType | None) -> Place:
        while frame is not None:
            code = frame.f_code
            known = self._places.get(id(code))
            if known is None:
                module = frame.f_globals.get("__name__", "")
                step = step_of(module, code.co_qualname)
                known = (code, (step, f"{module}:{code.co_qualname}") if step else None)
                self._places[id(code)] = known
            if known[1] is not None:
                return known[1]
            frame = frame.f_back
        return OTHER, ""

    def _collecting(self, phase: str, _: object) -> None:
        """Called by Python before and after it looks for garbage, on the thread that does."""
        now = time.thread_time_ns()
        if phase == "start":
            self._busy, self._began = True, now
            return
        clock = time.pthread_getcpuclockid(threading.get_ident())
        self._garbage += now - self._began
        self._clocks[clock] = self._clocks.get(clock, 0) + now - self._began
        self._busy = False


class Kept:
    """What Python holds of what has been allocated since it was made: bytes and blocks, by step.

    Blocks of Python's own allocators. What SQLite and other libraries take by themselves is not in it.
    """

    def __init__(self) -> None:
        gc.collect()
        tracemalloc.start(STACK_KEPT)

    def take(self) -> dict[str, Any]:
        """`steps`: step -> [bytes, blocks], now; ends the tracing. What only garbage holds is let go before."""
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
        tracemalloc.stop()
        names = {module.__file__: name for name, module in sys.modules.items() if getattr(module, "__file__", None)}
        held: dict[str, list[int]] = {}
        steps: dict[tuple[str, int], str] = {}
        for trace in snapshot.traces:
            step = OTHER
            for place in reversed(trace.traceback):  # the innermost last
                key = (place.filename, place.lineno)
                if key not in steps:
                    module = names.get(place.filename, "")
                    steps[key] = step_of(module, _function_at(*key)) if module else ""
                if steps[key]:
                    step = steps[key]
                    break
            sums = held.setdefault(step, [0, 0])
            sums[0] += trace.size
            sums[1] += 1
        return {"steps": held}


def _function_at(filename: str, line: int) -> str:
    """The qualified name of the innermost function around a line, "" for none."""
    functions = _FUNCTIONS.get(filename)
    if functions is None:
        functions = _FUNCTIONS[filename] = list(
            _functions(compile("".join(linecache.getlines(filename)), filename, "exec"))
        )
    around = [(end - first, name) for first, end, name in functions if first <= line <= end]
    return min(around)[1] if around else ""


_FUNCTIONS: dict[str, list[tuple[int, int, str]]] = {}


def _functions(code: CodeType) -> Any:
    """First line, last line and name of every function in a module."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            lines = [line for _, _, line in each.co_lines() if line is not None]
            yield min(lines), max(lines), each.co_qualname
            yield from _functions(each)
