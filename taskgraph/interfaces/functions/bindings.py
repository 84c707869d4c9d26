"""Which functions the app has, and what triggers each: read once from the app's settings.

The host has the names from the decorators in `deploy/function_app.py`; they must be those under which all others send.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from taskgraph.interfaces.settings import connection_name, read_keep_days, read_naming
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.messages import EVENT_TYPES
from taskgraph.model.names import QueueNames

SWEEP_VARIABLE: Final = "TASKGRAPH_SWEEP_SECONDS"
SWEEP_SECONDS_DEFAULT: Final = 60
"""Twice as long as `serve` waits: a round of a function is billed for a second at least, however short it is."""

_SECONDS: Final = (5, 10, 15, 20, 30)
_MINUTES: Final = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)


@dataclass(frozen=True, slots=True)
class Trigger:
    """A function, and the queue whose messages call it."""

    function: str
    queue: str


@dataclass(frozen=True, slots=True)
class Bindings:
    """All functions of the app. connection: name of the host's setting. schedule: NCRONTAB, seconds first.

    keep_days: for how long graphs are kept after their end, None for ever.
    """

    connection: str
    events: tuple[Trigger, ...]
    poison: tuple[Trigger, ...]
    sweep_seconds: int
    schedule: str
    keep_days: float | None = None


def read_bindings(environ: Mapping[str, str]) -> Bindings:
    """What the app's settings say. Raises InvalidSettings, naming the one that makes no sense."""
    naming = read_naming(environ)
    names = QueueNames(naming.prefix, naming.queues_per_operation)
    functions = ("events", *EVENT_TYPES) if naming.queues_per_operation else ("events",)
    events = tuple(map(Trigger, functions, names.received))
    poison = tuple(Trigger(f"{each.function}-poison", names.poison(each.queue)) for each in events)
    seconds = _sweep_seconds(environ)
    return Bindings(connection_name(environ), events, poison, seconds, schedule(seconds), read_keep_days(environ))


def schedule(seconds: int) -> str:
    """The NCRONTAB expression of "every so many seconds". Raises InvalidSettings for what it cannot say evenly."""
    if seconds in _SECONDS:
        return f"*/{seconds} * * * * *"
    minutes, rest = divmod(seconds, 60)
    if rest == 0 and minutes in _MINUTES:
        return "0 * * * * *" if minutes == 1 else f"0 */{minutes} * * * *"
    raise InvalidSettings(
        f"{SWEEP_VARIABLE}={seconds}: a timer goes evenly through {', '.join(map(str, _SECONDS))} seconds, "
        f"or {', '.join(map(str, _MINUTES))} minutes (write them in seconds)"
    )


def _sweep_seconds(environ: Mapping[str, str]) -> int:
    text = environ.get(SWEEP_VARIABLE, "") or str(SWEEP_SECONDS_DEFAULT)
    if not text.isascii() or not text.isdigit():
        raise InvalidSettings(f"{SWEEP_VARIABLE}={text!r}: write a whole number of seconds")
    return int(text)
