"""Calls of functions as tasks: `@task`, and arguments that are checked and hold the results of other tasks."""

import functools
import inspect
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, Union, overload

from taskgraph.model.errors import InvalidInput
from taskgraph.worker.executors.callables import CALL_NAME, PLAIN

Function = Callable[..., Any]

_KEYS: Final = frozenset({"$result", "$subs", "$param"})  # of an object that stands for a value


class HasResult(ABC):
    """What stands for its result where it is handed on as an argument."""

    __slots__ = ()

    @abstractmethod
    def result(self, path: str = "", **default: Any) -> dict[str, Any]:
        """What stands for the result in a payload."""


class Building(Protocol):
    """A graph that takes tasks of calls."""

    def add_call(self, call: Function, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """Add a task of its own label, and give it."""


building: ContextVar[Building | None] = ContextVar("taskgraph_building", default=None)


@dataclass(slots=True)
class Arguments:
    """Arguments as JSON values, and the labels whose results they hold."""

    values: dict[str, Any]
    labels: list[str] = field(default_factory=list)


@overload
def task(function: Function, /) -> Function: ...


@overload
def task(
    *, name: str | None = None, retries: int = 0, timeout: float | None = None, **options: Any
) -> Callable[[Function], Function]: ...


def task(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    retries: int = 0,
    timeout: float | None = None,
    **options: Any,
) -> Any:
    """Let calls of a function make tasks inside `with Graph(…)`; elsewhere they call it.

    name: by which workers know it, and the label of its first task; its own if None. retries: how often a task may run
    again because it failed. timeout: seconds that a run may take. options: further arguments of `Task`. Raises
    InvalidInput, when a task is made, for arguments that do not fit its signature and annotations.
    """

    def decorate(plain: Function) -> Function:
        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            graph = building.get()
            if graph is None:
                return plain(*args, **kwargs)
            arguments = _bound(call, args, kwargs)
            return graph.add_call(call, arguments, {"reruns": retries, "max_run_time": timeout, **options})

        vars(call)[CALL_NAME] = name or plain.__name__
        vars(call)[PLAIN] = plain
        return call

    return decorate if function is None else decorate(function)


def name_of(function: Function) -> str:
    """The name by which tasks call a function. Raises InvalidInput for one without a name."""
    name = getattr(function, CALL_NAME, None) or getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise InvalidInput(f"{function!r} has no name: give one with task(name=…)")
    return name


def checked(function: Function, given: Mapping[str, Any]) -> Arguments:
    """Arguments for a call, checked against the signature and the annotations of the function. Raises InvalidInput."""
    plain, name = getattr(function, PLAIN, function), name_of(function)
    _bound(function, (), given)
    try:
        hints = typing.get_type_hints(plain)
    except (NameError, TypeError):  # of names that exist for type checkers only: nothing is known of them here
        hints = {}
    made = Arguments({})
    for key, value in given.items():
        place = f"{name}: {key}"
        made.values[key] = _as_json(value, place, made.labels)
        if key in hints and not _fits(made.values[key], hints[key]):
            raise InvalidInput(f"{place} is {_kind(value)}, and its annotation says {_text(hints[key])}")
    return made


def _bound(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name; without `context`, which the worker gives."""
    name = name_of(function)
    try:
        signature = inspect.signature(getattr(function, PLAIN, function))
    except ValueError:  # a builtin without one: only calling it shows
        if args:
            raise InvalidInput(f"{name}: its arguments have no names; hand them in by name") from None
        return dict(kwargs)
    if "context" in kwargs:
        raise InvalidInput(f"{name}: context is the worker's to give; leave it out")
    left = [each for each in signature.parameters.values() if each.name != "context"]
    if any(each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL) for each in left):
        raise InvalidInput(f"{name}: a task hands in arguments by name, so its function must have no / and no *args")
    try:
        bound = signature.replace(parameters=left).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidInput(f"{name}: {error}") from error
    rest = next((each.name for each in left if each.kind is each.VAR_KEYWORD), None)
    arguments = dict(bound.arguments)
    return arguments | arguments.pop(rest, {}) if rest is not None else arguments


def _as_json(value: Any, place: str, labels: list[str]) -> Any:
    """A value with references where tasks stand; adds their labels."""
    match value:
        case HasResult():
            return _as_json(value.result(), place, labels)
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            if wrong := [key for key in value if not isinstance(key, str)]:
                raise InvalidInput(f"{place} has the key {wrong[0]!r}: keys in JSON are texts")
            if isinstance(label := value.get("$result"), str):
                labels.append(label)
            return {key: _as_json(each, f"{place}/{key}", labels) for key, each in value.items()}
        case list() | tuple():
            return [_as_json(each, f"{place}/{number}", labels) for number, each in enumerate(value)]
    raise InvalidInput(f"{place} is {_kind(value)}, which is no JSON value: hand in texts, numbers, lists and dicts")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is of an annotated type; what this cannot judge fits."""
    if isinstance(value, dict) and value.keys() & _KEYS:
        return True
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in inner)
    if hint is None or hint is type(None):
        return value is None
    if origin in (int, float):
        allowed = (int,) if origin is int else (int, float)
        return isinstance(value, allowed) and not isinstance(value, bool)
    if origin in (bool, str):
        return isinstance(value, origin)
    if origin is list:
        return isinstance(value, list) and all(_fits(each, inner[0]) for each in value if inner)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(each, inner[1]) for each in value.values() if inner)
    return True


def _kind(value: Any) -> str:
    return "None" if value is None else f"{value!r:.60} ({type(value).__name__})"


def _text(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
