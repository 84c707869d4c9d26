"""Microsoft's Python worker library, driven as the Functions host drives it: one app, in a process of its own.

What this room is for: the same calls, in the same order, with the same messages as in the cloud: WorkerInit (which
indexes the app), FunctionsMetadata, FunctionLoad, Invocation, and the app's log lines on their way back. Its host sends
and receives lines of JSON over a socket; standard output stays the app's own. It never imports anything of taskgraph,
never touches a queue, and ends when its host does.

A script: `python -I worker_main.py DESCRIPTOR`, in the environment that `environment` makes. It is never imported.
"""

import asyncio
import base64
import contextlib
import importlib
import json
import logging
import os
import socket
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any, Final

_LINE_BYTES_MAX: Final = 64 * 1024 * 1024  # a message has 64 KiB; the list of an app's functions may be longer
_HOST_VERSION: Final = "4.0.0"
_PACKAGES: Final = (".python_packages", "lib", "site-packages")  # where a package that is deployed brings its own
_SYSTEM: Final = ("azure_functions_runtime", "azure_functions_worker", "azure.functions")  # loggers of the worker
_LEVELS: Final = (
    (logging.CRITICAL, "Critical"),
    (logging.ERROR, "Error"),
    (logging.WARNING, "Warning"),
    (logging.INFO, "Information"),
    (logging.DEBUG, "Debug"),
)


class Channel:
    """What is said to the host, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: asyncio.StreamWriter) -> None:
        self._loop = loop
        self._writer = writer
        self._thread = threading.get_ident()

    def send(self, said: dict[str, Any]) -> None:
        """One line. What is said when the host no longer listens is lost."""
        line = json.dumps(said, separators=(",", ":")).encode() + b"\n"
        if threading.get_ident() == self._thread:
            self._write(line)
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._write, line)

    def _write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)


class ForwardedLogs(logging.Handler):
    """Log records as the host gets them: level, category, invocation, text."""

    def __init__(self, channel: Channel, invocation: Any, *, system_level: int) -> None:
        super().__init__()
        self._channel = channel
        self._invocation = invocation
        self._system_level = system_level

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, unless it is the worker's own and of no interest."""
        system = record.name.startswith(_SYSTEM)
        if system and record.levelno < self._system_level:
            return
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self._channel.send(
            {
                "is": "log",
                "level": next((name for level, name in _LEVELS if record.levelno >= level), "Trace"),
                "category": record.name,
                "system": system,
                "invocation": self._invocation.get() or "",
                "message": text,
            }
        )


class Worker:
    """The library, and the messages that it takes and gives."""

    def __init__(self, runtime: ModuleType, protos: ModuleType, channel: Channel) -> None:
        self._runtime = runtime
        self._protos = protos
        self._channel = channel
        self._running: set[asyncio.Task[None]] = set()

    async def begin(self, app: str) -> None:
        """Index the app, and send the host its functions, or why there are none."""
        protos, runtime = self._protos, self._runtime
        runtime.start_threadpool_executor()
        init = protos.WorkerInitRequest(host_version=_HOST_VERSION, function_app_directory=app)
        answer = await runtime.worker_init_request(self._request(worker_init_request=init))
        if self._refused(answer.result):
            return
        found = await runtime.functions_metadata_request(
            self._request(functions_metadata_request=protos.FunctionsMetadataRequest(function_app_directory=app))
        )
        if self._refused(found.result):
            return
        functions = list(found.function_metadata_results)
        for function in functions:
            load = protos.FunctionLoadRequest(function_id=function.function_id, metadata=function)
            loaded = await runtime.function_load_request(self._request(function_load_request=load))
            if self._refused(loaded.result):
                return
        self._channel.send(
            {
                "is": "ready",
                "pid": os.getpid(),
                "worker": answer.worker_metadata.worker_version,
                "python": answer.worker_metadata.runtime_version,
                "functions": [_described(function) for function in functions],
            }
        )

    def invoke(self, asked: dict[str, Any]) -> None:
        """Begin an invocation beside the others."""
        task = asyncio.get_running_loop().create_task(self._invoke(asked))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def end(self) -> None:
        """Cancel what still runs."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=2.0)

    async def _invoke(self, asked: dict[str, Any]) -> None:
        protos = self._protos
        self._runtime.invocation_id_cv.set(asked["id"])  # for the log lines of this task
        metadata = {name: self._typed(value) for name, value in asked["metadata"].items()}
        request = protos.InvocationRequest(
            invocation_id=asked["id"],
            function_id=asked["function"],
            input_data=[protos.ParameterBinding(name=asked["binding"], data=self._typed(asked["data"]))],
            trigger_metadata=metadata,
        )
        answer = await self._runtime.invocation_request(self._request(invocation_request=request))
        done: dict[str, Any] = {"is": "done", "id": asked["id"], "status": answer.result.status}
        if answer.result.status != protos.StatusResult.Success:
            done |= _error_fields(answer.result.exception)
        elif answer.return_value.WhichOneof("data") == "http":
            done["http"] = _http_fields(answer.return_value.http)
        self._channel.send(done)

    def _request(self, **content: Any) -> SimpleNamespace:
        """What the library takes: a message of the stream, and what its process would know."""
        message = self._protos.StreamingMessage(**content)
        return SimpleNamespace(request=message, properties={"host": "127.0.0.1", "protos": self._protos})

    def _typed(self, value: dict[str, Any]) -> Any:
        ((kind, content),) = value.items()
        if kind == "http":
            body = self._protos.TypedData(bytes=base64.b64decode(content["body"]))
            return self._protos.TypedData(http=self._protos.RpcHttp(**{**content, "body": body}))
        if kind == "bytes":
            return self._protos.TypedData(bytes=base64.b64decode(content))
        return self._protos.TypedData(**{kind: content})

    def _refused(self, result: Any) -> bool:
        if result.status == self._protos.StatusResult.Success:
            return False
        self._channel.send({"is": "failed", **_error_fields(result.exception)})
        return True


def _error_fields(exception: Any) -> dict[str, str]:
    """An exception of the protocol. The library writes `Type: text` into the message, and leaves the type empty."""
    kind, separator, text = exception.message.partition(": ")
    if exception.type or not separator:
        kind, text = exception.type, exception.message
    return {"type": kind, "message": text, "stack": exception.stack_trace}


def _http_fields(http: Any) -> dict[str, Any]:
    body = http.body.bytes if http.body.WhichOneof("data") == "bytes" else http.body.string.encode()
    return {
        "status": int(http.status_code),
        "headers": dict(http.headers),
        "body": base64.b64encode(body).decode("ascii"),
    }


def _described(function: Any) -> dict[str, Any]:
    return {
        "name": function.name,
        "id": function.function_id,
        "script": function.script_file,
        "bindings": [json.loads(binding) for binding in function.raw_bindings],
        "retries": function.retry_options.max_retry_count,
    }


def _messages() -> ModuleType:
    """The messages of the protocol. First of all: they are called `tests`, which an app may have as well."""
    protos = importlib.import_module("tests.protos")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    return protos


def _set_paths(app: str, others: list[str]) -> None:
    """Where the app finds what it imports: what it brings first. others: used only if it brings nothing."""
    own = os.path.join(app, *_PACKAGES)
    brings = os.path.isdir(own)
    sys.path[:0] = [own, app] if brings else [app]
    if not brings:
        sys.path.extend(path for path in others if path not in sys.path)


async def _serve(descriptor: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor), limit=_LINE_BYTES_MAX)
    channel = Channel(asyncio.get_running_loop(), writer)
    begin = json.loads(await reader.readline())
    protos = _messages()
    _set_paths(begin["app"], begin["paths"])
    runtime = importlib.import_module("azure_functions_runtime")
    root = logging.getLogger()
    root.setLevel(logging.DEBUG if begin["debug"] else logging.INFO)
    root.addHandler(
        ForwardedLogs(
            channel, runtime.invocation_id_cv, system_level=logging.DEBUG if begin["debug"] else logging.WARNING
        )
    )
    worker = Worker(runtime, protos, channel)
    await worker.begin(begin["app"])
    while line := await reader.readline():
        asked = json.loads(line)
        if asked["do"] == "invoke":
            worker.invoke(asked)
        elif asked["do"] == "end":
            await worker.end()
            writer.close()
            return
    # The host has gone, without a word: nothing waits for what still runs, and its messages come again.
    os._exit(1)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
