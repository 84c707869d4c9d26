"""Executor `python`: callables of this process, registered by name.

A coroutine function is awaited on the worker's own loop; any other callable runs in a thread of its own. No thread can
be ended from outside: when a run is cancelled, its thread goes on and its answer is thrown away. What callables print
and log goes to the logs of their runs (`printed`).
"""

import asyncio
import contextvars
import copy
import importlib
import inspect
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Final, TypeVar

from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.worker.executors.contract import (
    Outcome,
    TemporaryFailure,
    Work,
    WriteLog,
    checked_result,
    failed,
    failed_for_now,
    malformed,
    payload_of,
)
from taskgraph.worker.executors.printed import captured

CALL_NAME: Final = "taskgraph_name"
"""Attribute of a function that `taskgraph.task` has decorated: the name by which tasks call it."""

PLAIN: Final = "taskgraph_plain"
"""Attribute of the same: the function itself, which a run calls."""

Function = TypeVar("Function", bound=Callable[..., Any])


class Registry(dict[str, Callable[..., Any]]):
    """Callables by the names that tasks call them.

    tasks = Registry()

    @tasks.register("resize")
    def resize(path: str, width: int) -> dict[str, int]: ...
    """

    def register(self, name: str) -> Callable[[Function], Function]:
        """A decorator that makes a callable known. Raises InvalidSettings for a name that is empty or taken."""

        def remember(function: Function) -> Function:
            if not name:
                raise InvalidSettings("a callable needs a name")
            if self.setdefault(name, function) is not function:
                raise InvalidSettings(f"two callables are named {name}")
            return function

        return remember


class PythonExecutor:
    """Calls `payload.call` with `payload.arguments`; what it returns, as JSON, is the result (None: no result).

    A parameter `context` is given the Work. What the callable raises is a failure, "Type: text", with its traceback in
    the log; a TemporaryFailure is one for the moment. Arguments that do not fit its signature are a malformed payload.
    """

    name = "python"
    instant = False
    queue = None

    def __init__(self, callables: Mapping[str, Callable[..., Any]]) -> None:
        self._callables = {name: getattr(each, PLAIN, each) for name, each in callables.items()}

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        try:
            name = _name_of(definition)
        except InvalidInput:
            return None  # for `run` to say
        return None if name in self._callables else self._unknown(name)

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        try:
            name = _name_of(work.definition)
            if name not in self._callables:
                return malformed(self._unknown(name))
            function = self._callables[name]
            arguments = _arguments_for(function, work)
        except InvalidInput as error:
            return malformed(str(error))
        async with captured(write_log):
            value, raised = await _call(function, arguments)
        if raised is not None:
            text = "".join(traceback.format_exception(raised))
            await write_log(text.encode("utf-8", "backslashreplace"))
            if isinstance(raised, TemporaryFailure):
                return failed_for_now(_error_text(raised), retry_after=raised.retry_after)
            return failed(_error_text(raised))
        try:
            return Outcome(failed=False, result=None if value is None else _json_of(value))
        except InvalidInput as error:
            return failed(str(error))

    def _unknown(self, name: str) -> str:
        near = get_close_matches(name, self._callables, n=1)
        return f"no callable is named “{name}” here" + (f"; did you mean “{near[0]}”?" if near else "")


def load_callables(place: str) -> Mapping[str, Callable[..., Any]]:
    """The callables of a `module`, or of a `module:attribute`, by name; a module of the working directory is found too.

    An attribute may be a Registry, another mapping from names to callables, or a callable (known by the last part of
    its path). Of a module alone, everything in its registries is taken; if it has none, its own public functions.
    Raises InvalidSettings when nothing can be imported or called there.
    """
    name, _, path = place.partition(":")
    if not name or (":" in place and not path):
        raise InvalidSettings(f"“{place}” is neither MODULE nor MODULE:ATTRIBUTE")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(name)
    except Exception as error:  # importing runs the module, so anything may come
        raise InvalidSettings(f"{name} cannot be imported: {_error_text(error)}") from error
    if not path:
        return _callables_of(module)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise InvalidSettings(f"{name} has no {path}")
        found = getattr(found, part)
    if isinstance(found, Mapping):
        wrong = [key for key, value in found.items() if not isinstance(key, str) or not callable(value)]
        if wrong:
            raise InvalidSettings(f"{place} must map names to callables, and “{wrong[0]}” does not")
        return dict(found)
    if callable(found):
        return {getattr(found, CALL_NAME, path.rpartition(".")[2]): found}
    raise InvalidSettings(f"{place} is neither a mapping of callables nor a callable")


def _callables_of(module: ModuleType) -> Mapping[str, Callable[..., Any]]:
    collected: dict[str, Callable[..., Any]] = {}
    registries = {id(value): value for value in vars(module).values() if isinstance(value, Registry)}
    for registry in registries.values():
        for name, function in registry.items():
            if collected.setdefault(name, function) is not function:
                raise InvalidSettings(f"{module.__name__} names two callables {name}")
    if not registries:
        collected = {
            getattr(value, CALL_NAME, name): value
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
        }
    if not collected:
        raise InvalidSettings(f"{module.__name__} has no callables: neither a registry nor public functions")
    return collected


def _name_of(definition: Mapping[str, Any]) -> str:
    name = payload_of(definition).get("call")
    if not isinstance(name, str) or not name:
        raise InvalidInput("payload.call must be the name of a callable")
    return name


def _arguments_for(function: Callable[..., Any], work: Work) -> dict[str, Any]:
    given = payload_of(work.definition).get("arguments") or {}
    if not isinstance(given, Mapping):
        raise InvalidInput("payload.arguments must be an object")
    arguments = copy.deepcopy(dict(given))  # the definition is that of all tasks with the same text
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without one: only calling it shows
        return arguments
    context = signature.parameters.get("context")
    if context is not None and context.kind in (context.POSITIONAL_OR_KEYWORD, context.KEYWORD_ONLY):
        if "context" in arguments:
            raise InvalidInput("payload.arguments must not hold context: it is the worker's to give")
        arguments["context"] = work
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise InvalidInput(f"payload.arguments do not fit {_name_of(work.definition)}: {error}") from error
    return arguments


async def _call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[Any, BaseException | None]:
    """What the callable returned, or what it raised. Only a cancellation of our own goes through."""
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(type(function).__call__):
        value, error = await _in_thread(function, arguments)
        if error is not None or not inspect.isawaitable(value):
            return value, error
    else:
        value = function(**arguments)
    try:
        return await value, None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return None, error  # raised by the callable itself: an answer like any other
    except (Exception, SystemExit) as error:
        return None, error


async def _in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[Any, BaseException | None]:
    """Call it in a thread of its own: callables may take hours, and the store needs the few of asyncio.to_thread.

    A daemon, as a callable that was given up must not keep the worker from ending.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not answer.done():
            answer.set_result((value, error))

    def call() -> None:
        value, error = None, None
        try:
            value = context.run(function, **arguments)
        except BaseException as raised:  # handed over: a thread has no caller
            error = raised
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            if not loop.is_closed():  # closed: given up long ago
                raise

    threading.Thread(target=call, name=f"taskgraph-{getattr(function, '__name__', 'callable')}", daemon=True).start()
    return await answer


def _error_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide the failure itself
        text = "(its text cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _json_of(value: Any) -> bytes:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        data = text.encode("utf-8")
    except RecursionError as error:
        raise InvalidInput("the result is nested too deeply") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the result is not JSON: {error}") from error
    return checked_result(data)
