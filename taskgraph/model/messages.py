"""Messages: what goes through queues, as frozen values and as JSON text.

A message is a hint: it names rows, and the receiver reads them, or writes them under the etag that its sender saw.
Reading is strict about what is named here, passes over keys that it does not know, and leaves a higher version to a
newer reader. The checks are those of `schemas/message-<type>.json` written out, with a sentence for each problem, so
that a handler need not load `jsonschema-rs`; a test compares the two.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, Final

from taskgraph.model import json_pointer, json_strict, limits
from taskgraph.model.errors import InvalidMessage, TaskgraphError
from taskgraph.model.ids import is_graph_id, is_task_id, value
from taskgraph.model.json_strict import show
from taskgraph.model.limits import ROUTING_KEY_CHARS_MAX
from taskgraph.model.priorities import LEVELS, is_level
from taskgraph.model.schemas import is_date_time
from taskgraph.model.spent import Used, used_in

VERSION: Final = 1
LARGE_VERSION: Final = 2
"""Of work and results with more tasks than programs before 0.4 read in one message."""

RUN_MAX: Final = 1_000_000
CLAIM_CHARS_MAX: Final = 128
ETAG_CHARS_MAX: Final = 128
WORKER_CHARS_MAX: Final = 255
URL_CHARS_MAX: Final = 4_096
_ENDED_CHARS_MAX: Final = 64
_RESOLUTION_TEXTS: Final = (
    ("resultUrl", URL_CHARS_MAX),
    ("logsUrl", URL_CHARS_MAX),
    ("reason", limits.REASON_CHARS_MAX),
)
BODY_CHARS_MAX: Final = limits.MESSAGE_BYTES_MAX * 4 // 3  # what a queue takes: 64 KiB, base64 included

_IS_TARGET = re.compile(limits.TARGET_PATTERN)
_IS_REQUEST = re.compile(limits.GRAPH_ID_PATTERN)
_IS_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?\+00:00")
_ASKED_CHARS_MAX: Final = 40
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_ASCII_JSON: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

_Runs = tuple[tuple[tuple[str, int], ...], Mapping[str, "Seen"], Mapping[str, str]]


class UnknownVersion(TaskgraphError):
    """A message of a higher version. It is left for a newer reader (P23)."""


@value
class AddTasks:
    """Add the tasks that a stored request holds. request: name of the request in the graph's partition."""

    graph: str
    request: str


@value
class Edit:
    """Change the graph as a stored request says. request: name of the request in the graph's partition."""

    graph: str
    request: str


@value
class Rerun:
    """Run tasks again that have ended. tasks: each with the run that is replaced; one that has moved on ignores it.

    reopens: the graph was cancelled when this was asked for, and is to go on; one that has been since is left alone.
    by: who asks, for the journal.
    """

    graph: str
    tasks: tuple[tuple[str, int], ...]
    reason: str = ""
    reopens: bool = False
    by: str = ""


@value
class Cancel:
    """Cancel these tasks, or, without any, the whole graph.

    tasks: each with its number of reruns by hand; a task with more of them is left alone. terminate: do not wait for
    workers to stop what they run. reopened: how often the graph had gone on after its end, by reruns; one that has
    since is left alone. by: who asks, for the journal.
    """

    graph: str
    tasks: tuple[tuple[str, int], ...] = ()
    reason: str = ""
    terminate: bool = False
    reopened: int = 0
    by: str = ""


@value
class HoldBack:
    """Hold tasks back, or let them go on: these tasks, or this group, or, without either, the whole graph.

    asked: when, RFC 3339 in UTC: of two wishes the later one counts, in whatever order they arrive. by: see Rerun.
    budget: the amount that the graph may cost from now on, 0 to leave it as it is.
    """

    graph: str
    on: bool
    asked: str
    group: str = ""
    tasks: tuple[str, ...] = ()
    reason: str = ""
    by: str = ""
    budget: float = 0.0


@value
class SetLimit:
    """Let so many tasks of a graph, or of a group, be in flight; 0: any number. asked, by: see HoldBack."""

    graph: str
    most: int
    asked: str
    group: str = ""
    reason: str = ""
    by: str = ""


@value
class Prioritize:
    """Give these tasks this level, as far as they neither run nor have ended. asked, by: see HoldBack."""

    graph: str
    level: str
    asked: str
    tasks: tuple[str, ...]
    reason: str = ""
    by: str = ""


@value
class SendReady:
    """Send what is ready in a graph; its tasks up to the taskId `after` have been sent."""

    graph: str
    after: str = ""


@value
class TaskResult:
    """How one run ended.

    claim: of the run; no result counts without it (D10). ended: RFC 3339. resolution: `failed` (bool), and where known
    `resultUrl`, `logsUrl`, `reason`, `exitCode`; other keys are kept. exception: the run got to no answer, so no rerun
    will help. temporary: it failed for the moment; retry_after: seconds to wait, None if it does not say. etag: of the
    task's row as its worker last wrote it, over: of the row before the claim, with no write between; "" if not known. A
    process with that row need not read it. routing: see RunTasks; for listeners. seconds: how long it ran, None if not
    known.
    """

    task: str
    run: int
    claim: str
    ended: str
    resolution: Mapping[str, Any]
    exception: bool = False
    etag: str = ""
    over: str = ""
    temporary: bool = False
    retry_after: float | None = None
    routing: str = ""
    seconds: float | None = None


@value
class TaskCompleted:
    """Runs that succeeded: 1..96 tasks of one graph. worker: its name, "" if not known.

    used: what it has used for the graph since it said so last, with this message; None if not known.
    """

    graph: str
    tasks: tuple[TaskResult, ...]
    worker: str = ""
    used: Used | None = None


@value
class TaskFailed:
    """Runs that failed: 1..96 tasks of one graph. used: see TaskCompleted."""

    graph: str
    tasks: tuple[TaskResult, ...]
    used: Used | None = None


@value
class Seen:
    """What the sender of a work message knew of a pending task: it spares the worker a read.

    etag: of the row; a claim under it fails if the row has changed since. label, definition: as the row has them. next:
    the one task that requires this one and waits for nothing else, "" if there is none.
    """

    etag: str
    label: str
    definition: str
    next: str = ""


@value
class RunTasks:
    """Work for one target: 1..96 tasks of one graph, each with the number of the run that is wanted.

    seen: taskId -> what was known of it; it may lack any. level: of the tasks (see `priorities`), also sent to its own
    queue; "" where receivers know that it is used. routing: taskId -> its graph's, a dot, its own; it may lack any.
    """

    graph: str
    target: str
    tasks: tuple[tuple[str, int], ...]
    seen: Mapping[str, Seen] = field(default_factory=dict, hash=False)
    level: str = ""
    routing: Mapping[str, str] = field(default_factory=dict, hash=False)


_Request = AddTasks | Cancel | Edit | HoldBack | Prioritize | Rerun | SetLimit
_Large = TaskCompleted | TaskFailed | RunTasks
Message = _Request | SendReady | _Large


def type_of(message: Message) -> str:
    return _TYPES[type(message)]


def is_large(message: Message) -> bool:
    """Whether only readers of version 2 take this message: who sends it must know that all of its readers do."""
    return isinstance(message, _Large) and len(message.tasks) > limits.BUNDLE_TASKS_MAX


# --- writing ---------------------------------------------------------------------------------------------------


def to_object(message: Message) -> dict[str, Any]:
    own = type_of(message)
    version = LARGE_VERSION if is_large(message) else VERSION
    made: dict[str, Any] = {"version": version, "type": own, "graph": message.graph}
    for key in MESSAGE_TYPES[own].keys:
        said = getattr(message, key.field or key.name)
        if said or not key.optional:
            made[key.name] = key.write(said, message)
    if type(message) is Rerun and len(message.tasks) == 1:  # as versions before 0.4 read it
        (only,) = made.pop("tasks")
        made |= only
    return made


def _run_objects(runs: tuple[tuple[str, int], ...], message: RunTasks) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for task, run in runs:
        one: dict[str, Any] = {"task": task, "run": run}
        if seen := message.seen.get(task):
            one |= {"etag": seen.etag, "label": seen.label, "definition": seen.definition}
            if seen.next:
                one["next"] = seen.next
        if task in message.routing:
            one["routing"] = message.routing[task]
        made.append(one)
    return made


def _result_object(result: TaskResult) -> dict[str, Any]:
    made: dict[str, Any] = {
        "task": result.task,
        "run": result.run,
        "claim": result.claim,
        "ended": result.ended,
        "resolution": dict(result.resolution),
    }
    if result.exception:
        made["exception"] = True
    if result.etag and result.over:
        made["etag"], made["over"] = result.etag, result.over
    if result.temporary:
        made["temporary"] = True
        if result.retry_after is not None:
            made["retryAfter"] = result.retry_after
    if result.routing:
        made["routing"] = result.routing
    if result.seconds is not None:
        made["seconds"] = round(result.seconds, 3)
    return made


def to_text(message: Message) -> str:
    """JSON in ASCII; a lone surrogate becomes U+FFFD. Raises InvalidMessage for what JSON cannot hold."""
    try:
        text = _ASCII_JSON(to_object(message))
        if "\\ud" in text:
            whole = _HALF_CHARACTER.sub("\ufffd", json.dumps(to_object(message), ensure_ascii=False))
            text = json.dumps(json.loads(whole), separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"A {type_of(message)} message cannot be written as JSON: {error}.") from error
    return text


# --- reading ---------------------------------------------------------------------------------------------------


def parse(body: str | bytes) -> Message:
    """The message in a body of JSON, or base64 of it (D17). Raises InvalidMessage and UnknownVersion."""
    obj = _object(_strict(_plain(body)), "the body")
    version, kind = _whole_number(obj, "version", "the message", 1, limits.INT_MAX), obj.get("type")
    known = LARGE_VERSION if kind in _LARGE_TYPES else VERSION
    if version > known:
        raise UnknownVersion(f"The message has version {version}; this program reads version {known}.")
    if not isinstance(kind, str) or kind not in MESSAGE_TYPES:
        raise InvalidMessage(f"The type of the message is {show(kind)}, and none of {', '.join(MESSAGE_TYPES)}.")
    graph = obj.get("graph")
    if not isinstance(graph, str) or not is_graph_id(graph):
        raise InvalidMessage(f"`graph` of the {kind} message is {show(graph)}, which is no taskGraphId.")
    own = MESSAGE_TYPES[kind]
    said = [key.read(obj, key.name) for key in own.keys]
    if own.of is RunTasks:
        target, (runs, seen, routing), level = said
        return RunTasks(graph, target, runs, seen, level, routing)
    return own.of(graph, *said)


def _plain(body: str | bytes) -> str:
    if len(body) > BODY_CHARS_MAX:
        raise InvalidMessage(f"The body has {len(body):,} characters; {BODY_CHARS_MAX:,} fit into a queue.")
    try:
        text = body.decode("utf-8") if isinstance(body, bytes) else body
    except UnicodeDecodeError as error:
        raise InvalidMessage(f"The body is not UTF-8: byte {error.start:,} is wrong.") from error
    text = text.removeprefix("\ufeff").strip()
    if text.startswith("{"):
        return text
    try:
        decoded = base64.b64decode(text.encode("ascii"), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise InvalidMessage("The body is neither a JSON object nor base64 of one.") from error
    decoded = decoded.removeprefix("\ufeff").strip()
    if not decoded.startswith("{"):
        raise InvalidMessage("The body is base64, and what is inside is no JSON object.")
    return decoded


def _strict(text: str) -> Any:
    if json_strict.too_deep_at(text, limits.DOCUMENT_DEPTH_MAX) is not None:
        raise InvalidMessage(f"The message is nested more than {limits.DOCUMENT_DEPTH_MAX} deep.")
    try:
        parsed = json_strict.parse(text)
    except json.JSONDecodeError as error:
        raise InvalidMessage(f"The message is not JSON: {error.msg} (character {error.pos + 1:,}).") from error
    if parsed.suspect:
        for fault in json_strict.faults(parsed.value):
            where = show(json_pointer.pointer(fault.path, 60)) if fault.path else "the message"
            raise InvalidMessage(f"{fault.message} (at {where})")
    return parsed.value


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidMessage(f"{name[:1].upper()}{name[1:]} is {show(value)}, and must be an object.")
    return value


def _whole_number(obj: Mapping[str, Any], key: str, name: str, least: int, most: int) -> int:
    value = obj.get(key)
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        raise InvalidMessage(f"`{key}` of {name} is {show(value)}, and no whole number from {least} to {most:,}.")
    return value


def _text(obj: Mapping[str, Any], key: str, name: str, least: int, most: int, default: str | None = None) -> str:
    value = obj.get(key, default)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise InvalidMessage(f"`{key}` of {name} is {show(value)}, and no text of {least} to {most:,} characters.")
    return value


def _task_id(obj: Mapping[str, Any], name: str, key: str = "task") -> str:
    value = obj.get(key)
    if not isinstance(value, str) or not is_task_id(value):
        raise InvalidMessage(f"`{key}` of {name} is {show(value)}, which is no taskId.")
    return value


def _entries(obj: Mapping[str, Any]) -> list[Any]:
    tasks = obj.get("tasks")
    most = limits.BUNDLE_TASKS_MAX if obj.get("version") == VERSION else limits.LARGE_BUNDLE_TASKS_MAX
    if not isinstance(tasks, list) or not 1 <= len(tasks) <= most:
        raise InvalidMessage(f"`tasks` of the message must be an array of 1 to {most} tasks.")
    return tasks


def _name(form: re.Pattern[str], obj: Mapping[str, Any], key: str) -> str:
    found = obj.get(key)
    if not isinstance(found, str) or form.fullmatch(found) is None:
        raise InvalidMessage(f"`{key}` of the message is {show(found)}, which names no {key}.")
    return found


def _flag(obj: Mapping[str, Any], key: str, default: bool | None = None, name: str = "the message") -> bool:
    on = obj.get(key, default)
    if not isinstance(on, bool):
        raise InvalidMessage(f"`{key}` of {name} is {show(on)}, and must be true or false.")
    return on


def _held(obj: Mapping[str, Any], key: str) -> tuple[str, ...]:
    if key not in obj:
        return ()
    listed = obj[key]
    if not isinstance(listed, list) or not 1 <= len(listed) <= limits.BUNDLE_TASKS_MAX:
        raise InvalidMessage(f"`tasks` of the message must list 1 to {limits.BUNDLE_TASKS_MAX} taskIds.")
    tasks = tuple(_task_id({"task": each}, "an entry of `tasks`") for each in listed)
    if obj.get("group"):
        raise InvalidMessage("The message names `tasks` and a `group`: it is about one of them.")
    return tasks


def _named(obj: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(_task_id({"task": each}, "an entry of `tasks`") for each in _entries(obj))


def _asked(obj: Mapping[str, Any], key: str) -> str:
    asked = _text(obj, key, "the message", 1, _ASKED_CHARS_MAX)
    if _IS_UTC.fullmatch(asked) is None:
        raise InvalidMessage(f"`asked` of the message is {show(asked)}, and must be a time in UTC.")
    return asked


def _cancelled(obj: Mapping[str, Any], key: str) -> tuple[tuple[str, int], ...]:
    name = "an entry of `tasks`"
    entries = [_object(entry, name) for entry in _entries(obj)] if key in obj else []
    return tuple((_task_id(one, name), _whole_number(one, "reruns", name, 0, RUN_MAX)) for one in entries)


def _rerun(obj: Mapping[str, Any], key: str) -> tuple[tuple[str, int], ...]:
    if key not in obj and "task" in obj:  # of one task, as versions before 0.4 wrote it
        return ((_task_id(obj, "the message"), _whole_number(obj, "run", "the message", 0, RUN_MAX)),)
    name = "an entry of `tasks`"
    entries = [_object(entry, name) for entry in _entries(obj)]
    return tuple((_task_id(one, name), _whole_number(one, "run", name, 0, RUN_MAX)) for one in entries)


def _result(entry: Any, *, failed: bool) -> TaskResult:
    """One entry. What is plainly good is seen here, because there are many; the readers above name what is not."""
    name = "an entry of `tasks`"
    obj = _object(entry, name)
    get = obj.get
    task, run, claim, ended, etag = _task_id(obj, name), get("run"), get("claim"), get("ended"), get("etag", "")
    if type(run) is not int or not 0 <= run <= RUN_MAX:
        run = _whole_number(obj, "run", name, 0, RUN_MAX)
    if type(claim) is not str or not 1 <= len(claim) <= CLAIM_CHARS_MAX:
        claim = _text(obj, "claim", name, 1, CLAIM_CHARS_MAX)
    if type(ended) is not str or not 1 <= len(ended) <= _ENDED_CHARS_MAX:
        ended = _text(obj, "ended", name, 1, _ENDED_CHARS_MAX)
    if not is_date_time(ended):
        raise InvalidMessage(f"`ended` of an entry of `tasks` is {show(ended)}, which is no RFC 3339 date-time.")
    exception = get("exception", False)
    if exception is not False and (exception is not True or not failed):
        raise InvalidMessage(f"`exception` of an entry of `tasks` is {show(exception)}, which cannot be here.")
    over = get("over", "")
    if type(etag) is not str or type(over) is not str or len(etag) > ETAG_CHARS_MAX or len(over) > ETAG_CHARS_MAX:
        etag = _text(obj, "etag", name, 0, ETAG_CHARS_MAX, "")
        over = _text(obj, "over", name, 0, ETAG_CHARS_MAX, "")
    if not etag or not over:
        etag = over = ""  # one says nothing without the other
    resolution = _resolution(get("resolution"), failed)
    routing = get("routing", "")
    if routing != "":
        routing = _routing(obj, name)
    took = get("seconds")
    if took is not None and (type(took) not in (int, float) or not 0 <= took <= limits.DELAY_SECONDS_MAX * 1000):
        raise InvalidMessage(f"`seconds` of {name} is {show(took)}, and no length of a run.")
    if failed and ("temporary" in obj or "retryAfter" in obj):
        temporary, seconds = _temporary(obj, name)
        return TaskResult(task, run, claim, ended, resolution, exception, etag, over, temporary, seconds, routing, took)
    return TaskResult(task, run, claim, ended, resolution, exception, etag, over, routing=routing, seconds=took)


def _routing(obj: Mapping[str, Any], name: str) -> str:
    return _text(obj, "routing", name, 0, ROUTING_KEY_CHARS_MAX, "")


def _temporary(obj: Mapping[str, Any], name: str) -> tuple[bool, float | None]:
    temporary, seconds = _flag(obj, "temporary", False, name), obj.get("retryAfter")
    if "retryAfter" not in obj:
        return temporary, None
    most = limits.DELAY_SECONDS_MAX
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= most:
        raise InvalidMessage(f"`retryAfter` of {name} is {show(seconds)}, and no number from 0 to {most:,}.")
    return temporary, float(seconds)


def _resolution(value: Any, failed: bool) -> dict[str, Any]:
    name = "a resolution"
    resolution = _object(value, name)
    if resolution.get("failed") is not failed:
        found = show(resolution.get("failed"))
        raise InvalidMessage(f"`failed` of a resolution is {found}, and must be {show(failed)} in this message.")
    for key, most in _RESOLUTION_TEXTS:
        if key in resolution:
            _text(resolution, key, name, 0, most)
    if "exitCode" in resolution:
        _whole_number(resolution, "exitCode", name, limits.INT_MIN, limits.INT_MAX)
    return resolution


def _seen(one: Mapping[str, Any], name: str) -> Seen:
    """What an entry says of its task; without an etag, nothing that would help."""
    whole = "etag" in one
    return Seen(
        _text(one, "etag", name, 1, ETAG_CHARS_MAX) if whole else "",
        _text(one, "label", name, 0, limits.LABEL_CHARS_MAX * 2) if whole or "label" in one else "",
        _text(one, "definition", name, 2, limits.INLINE_DEFINITION_CHARS_MAX) if whole or "definition" in one else "",
        _task_id(one, name, "next") if "next" in one else "",
    )


def _runs(obj: Mapping[str, Any], _: str) -> _Runs:
    wanted = []
    seen: dict[str, Seen] = {}
    routing: dict[str, str] = {}
    name = "an entry of `tasks`"
    for entry in _entries(obj):
        one = _object(entry, name)
        task = _task_id(one, name)
        wanted.append((task, _whole_number(one, "run", name, 0, RUN_MAX)))
        if len(one) > 2:
            hint = _seen(one, name)
            if hint.etag:
                seen[task] = hint
            if "routing" in one and (key := _routing(one, name)):
                routing[task] = key
    return tuple(wanted), seen, routing


def _used(obj: Mapping[str, Any], key: str) -> Used | None:
    if key not in obj:
        return None
    try:
        return used_in(obj[key])
    except ValueError:
        raise InvalidMessage(f"`{key}` of the message is {show(obj[key])}, and counts nothing.") from None


def _budget(obj: Mapping[str, Any], key: str) -> float:
    amount = obj.get(key, 0)
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < limits.AMOUNT_MAX:
        raise InvalidMessage(f"`{key}` of the message is {show(amount)}, and no amount.")
    return float(amount)


def _level(obj: Mapping[str, Any], key: str) -> str:
    level = str(obj.get(key, ""))
    if key in obj and not is_level(obj[key]):
        raise InvalidMessage(f"`level` of the message is {show(obj[key])}, and none of {', '.join(LEVELS)}.")
    return level


# --- the table -------------------------------------------------------------------------------------------------


@value
class Key:
    """A key of a message's JSON. optional: not written where it is empty. field: of the class, if named otherwise."""

    name: str
    read: Callable[[Mapping[str, Any], str], Any]
    write: Callable[[Any, Any], Any] = lambda said, message: said
    optional: bool = False
    field: str = ""


@value
class MessageType:
    """keys: in the order of the class's fields. event: for handlers. asked_as: span of a request, "" for none."""

    of: type[Message]
    keys: tuple[Key, ...]
    asked_as: str = ""
    event: bool = True


def _said(name: str, most: int) -> Key:
    return Key(name, lambda obj, key: _text(obj, key, "the message", 0, most, ""), optional=True)


def _number(name: str, most: int, field: str = "") -> Key:
    return Key(name, lambda obj, key: _whole_number(obj, key, "the message", 0, most), field=field)


def _results(*, failed: bool) -> Key:
    read = partial(_result, failed=failed)
    return Key("tasks", lambda obj, _: tuple(map(read, _entries(obj))), lambda said, _: [*map(_result_object, said)])


_REQUEST: Final = Key("request", partial(_name, _IS_REQUEST))
_ASKED: Final = Key("asked", _asked)
_GROUP: Final = _said("group", limits.LABEL_CHARS_MAX)
_REASON: Final = _said("reason", limits.REASON_CHARS_MAX)
_CANCELLED: Final = Key("tasks", _cancelled, lambda said, _: [{"task": one, "reruns": n} for one, n in said], True)
_TERMINATE: Final = Key("terminate", lambda obj, key: _flag(obj, key, False), optional=True)
_REOPENED: Final = Key(
    "reopened",
    lambda obj, key: _whole_number(obj, key, "the message", 0, RUN_MAX) if key in obj else 0,
    optional=True,
)
_BY: Final = _said("by", limits.BY_CHARS_MAX)
_REOPENS: Final = Key("reopens", lambda obj, key: _flag(obj, key, False), optional=True)
_AGAIN: Final = Key("tasks", _rerun, lambda said, _: [{"task": one, "run": run} for one, run in said])
_USED: Final = Key("used", _used, lambda said, _: said._asdict(), optional=True)
_BUDGET: Final = Key("budget", _budget, optional=True)
_HELD: Final = Key("tasks", _held, lambda said, _: list(said), optional=True)
_NAMED: Final = Key("tasks", _named, lambda said, _: list(said))
_TO_LEVEL: Final = Key("level", lambda obj, key: _level({key: None, **obj}, key))
_MAX: Final = _number("max", limits.IN_FLIGHT_MAX, "most")
_AFTER: Final = Key("after", lambda obj, key: _task_id(obj, "the message", key) if key in obj else "", optional=True)
_TARGET: Final = Key("target", partial(_name, _IS_TARGET))
_WORK: Final = (_TARGET, Key("tasks", _runs, _run_objects), Key("level", _level, optional=True))

_HOLD_BACK: Final = (Key("on", _flag), _ASKED, _GROUP, _HELD, _REASON, _BY, _BUDGET)

MESSAGE_TYPES: Final = {
    "add-tasks": MessageType(AddTasks, (_REQUEST,), "extend"),
    "cancel": MessageType(Cancel, (_CANCELLED, _REASON, _TERMINATE, _REOPENED, _BY), "cancel"),
    "edit": MessageType(Edit, (_REQUEST,), "edit"),
    "hold-back": MessageType(HoldBack, _HOLD_BACK, "hold-back"),
    "prioritize": MessageType(Prioritize, (_TO_LEVEL, _ASKED, _NAMED, _REASON, _BY), "prioritize"),
    "set-limit": MessageType(SetLimit, (_MAX, _ASKED, _GROUP, _REASON, _BY), "set-limit"),
    "rerun": MessageType(Rerun, (_AGAIN, _REASON, _REOPENS, _BY), "rerun"),
    "send-ready": MessageType(SendReady, (_AFTER,)),
    "task-completed": MessageType(TaskCompleted, (_results(failed=False), _said("worker", WORKER_CHARS_MAX), _USED)),
    "task-failed": MessageType(TaskFailed, (_results(failed=True), _USED)),
    "run-tasks": MessageType(RunTasks, _WORK, event=False),
}
"""By the names that JSON gives them. Queues, telemetry, the Functions host and deploy/infra follow this table."""

EVENT_TYPES: Final = tuple(sorted(name for name, each in MESSAGE_TYPES.items() if each.event))
"""What handlers take; `run-tasks` is for workers."""

_TYPES: Final = {each.of: name for name, each in MESSAGE_TYPES.items()}
_LARGE_TYPES: Final = tuple(_TYPES[each] for each in (TaskCompleted, TaskFailed, RunTasks))


def graph_named(body: str) -> str:
    """The graph that a message names, "" if none is found."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(found.get("graph", "")) if isinstance(found, dict) else ""
