"""What the Functions host reads beside the app itself: `host.json`, `local.settings.json`, and the bindings.

What this room is for: turning these files into values, by the host's names, defaults and limits, and the store
of taskgraph into the settings by which the host and the app know it. It never opens anything and never shows a
value: there may be a key in it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import taskgraph
from taskgraph.interfaces.settings import HOST_VARIABLE, STORE_VARIABLE, StoreSettings, connection_name, read_settings
from taskgraph.model import limits
from taskgraph.model.errors import InvalidSettings

__all__ = ["Function", "HostJson", "Settings", "app_settings", "functions_of", "packaged_app", "read_host_json"]

APP_FILE: Final = "function_app.py"
HOST_FILE: Final = "host.json"
SETTINGS_FILE: Final = "local.settings.json"

POLLING_SECONDS_MAX: Final = 2.0
"""The longest pause between two polls where host.json names none: what the host takes on a developer's machine.
In Azure it takes a minute."""

HTTP_TRIGGER: Final = "httpTrigger"

_METHODS: Final = ("GET", "POST", "DELETE", "HEAD", "PATCH", "PUT", "OPTIONS")
_MAX_DEQUEUE_COUNT: Final = 5
_BATCH_SIZE: Final = 16
_POISON: Final = "-poison"
_QUEUE_NAME_CHARS_MAX: Final = 63
_OVERRIDES: Final = "AzureFunctionsJobHost__extensions__queues__"  # how a setting overrides a value of host.json
_LEVELS: Final = ("trace", "debug", "information", "warning", "error", "critical", "none")
_PLACEHOLDER: Final = re.compile(r"%([^%]+)%")
_SPAN: Final = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?")


# --- host.json -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostJson:
    """What host.json says of queues, routes and log lines; the host's own defaults where it says nothing.

    batch_size: messages of one poll. new_batch_threshold: polls again when no more than so many are in work.
    visibility_seconds: until a failed message is offered again. base64: how bodies are written. timeout_seconds: how
    long a function may run; None: for ever, as on a developer's machine. route_prefix: of all routes of HTTP triggers.
    """

    batch_size: int = _BATCH_SIZE
    new_batch_threshold: int = _BATCH_SIZE // 2
    max_dequeue_count: int = _MAX_DEQUEUE_COUNT
    visibility_seconds: float = 0.0
    polling_seconds_max: float = POLLING_SECONDS_MAX
    base64: bool = True
    timeout_seconds: float | None = None
    log_levels: Mapping[str, str] = field(default_factory=dict)
    route_prefix: str = "api"

    def shows(self, category: str, level: str) -> bool:
        """Whether a line of a category is shown: the level of the longest name that it begins with decides."""
        names = [name for name in self.log_levels if name == category or category.startswith(name + ".")]
        wanted = self.log_levels[max(names, key=len)] if names else self.log_levels.get("default", "information")
        return _LEVELS.index(level.lower()) >= _LEVELS.index(wanted)


def read_host_json(app: Path, environ: Mapping[str, str]) -> HostJson:
    """The app's host.json, with what the settings override. Raises InvalidSettings, naming the member."""
    path = app / HOST_FILE
    whole = _read_object(path, "an app has a host.json beside its function_app.py")
    if whole.get("version") != "2.0":
        raise InvalidSettings(f'{path}: version is {whole.get("version")!r}, and the host takes "2.0" alone')
    queues = {**_member(whole, path, "extensions", "queues")}
    for name, value in environ.items():
        if name.startswith(_OVERRIDES):
            queues[name.removeprefix(_OVERRIDES)] = value
    where = f"{path}: extensions.queues"
    batch = _whole(queues, where, "batchSize", _BATCH_SIZE, 1, limits.RECEIVE_MAX)
    encoding = str(queues.get("messageEncoding", "base64")).lower()
    if encoding not in ("base64", "none"):
        raise InvalidSettings(f"{where}.messageEncoding is {encoding!r}: base64 or none")
    return HostJson(
        batch_size=batch,
        new_batch_threshold=_whole(queues, where, "newBatchThreshold", batch // 2, 0, 1_000),
        max_dequeue_count=_whole(queues, where, "maxDequeueCount", _MAX_DEQUEUE_COUNT, 1, 1_000),
        visibility_seconds=_seconds(queues, where, "visibilityTimeout", 0.0),
        polling_seconds_max=max(_seconds(queues, where, "maxPollingInterval", POLLING_SECONDS_MAX), 0.1),
        base64=encoding == "base64",
        timeout_seconds=_timeout(whole, path),
        log_levels=_log_levels(whole, path),
        route_prefix=str(_member(whole, path, "extensions", "http").get("routePrefix", "api")).strip("/"),
    )


def _timeout(whole: Mapping[str, Any], path: Path) -> float | None:
    if str(whole.get("functionTimeout", "-1")) == "-1":
        return None
    return max(_seconds(whole, str(path), "functionTimeout", 0.0), 0.001)


def _log_levels(whole: Mapping[str, Any], path: Path) -> dict[str, str]:
    levels = {name: str(level).lower() for name, level in _member(whole, path, "logging", "logLevel").items()}
    for name, level in levels.items():
        if level not in _LEVELS:
            raise InvalidSettings(f"{path}: logging.logLevel.{name} is {level!r}: one of {', '.join(_LEVELS)}")
    return levels


def _member(value: Mapping[str, Any], path: Path, *names: str) -> Mapping[str, Any]:
    for number, name in enumerate(names, 1):
        inner = value.get(name) or {}
        if not isinstance(inner, dict):
            raise InvalidSettings(f"{path}: {'.'.join(names[:number])} is no object")
        value = inner
    return value


def _whole(values: Mapping[str, Any], where: str, name: str, default: int, least: int, most: int) -> int:
    given = values.get(name, default)
    try:
        number = int(given)
    except (TypeError, ValueError):
        number = least - 1
    if not least <= number <= most:
        raise InvalidSettings(f"{where}.{name} is {given!r}: a whole number from {least} to {most}")
    return number


def _seconds(values: Mapping[str, Any], where: str, name: str, default: float) -> float:
    """A length of time: `hh:mm:ss`, or a number of milliseconds, as older files have it."""
    given = values.get(name)
    if given is None:
        return default
    if isinstance(given, str) and (found := _SPAN.fullmatch(given)):
        days, hours, minutes, seconds, part = (found[n] or "0" for n in range(1, 6))
        return int(days) * 86400 + int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{part}")
    try:
        seconds_given = float(given) / 1000
    except (TypeError, ValueError):
        seconds_given = -1.0
    if not 0 <= seconds_given <= limits.DELAY_SECONDS_MAX:
        raise InvalidSettings(f'{where}.{name} is {given!r}: write it as "hh:mm:ss"')
    return seconds_given


# --- settings --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settings:
    """What the app's process has in its environment, and the store that this leads to."""

    environ: Mapping[str, str] = field(repr=False)
    store: StoreSettings


def app_settings(
    store: str | None,
    environ: Mapping[str, str],
    app: Path,
    file: Path | None,
    *,
    cwd: Path,
    needs_store: bool = True,
) -> Settings:
    """The settings of an app. store: what was asked for, or None. file: a local.settings.json; None: the app's, if any.

    What the environment says wins over the file, as with Core Tools. The app gets the store as from the host, by
    a connection; TASKGRAPH_STORE does not reach it. needs_store: queues are to be polled, and not only names
    to be read. Raises InvalidSettings.
    """
    merged = {**_values(app, file, environ), **environ}
    settings = read_settings(store, merged, cwd=cwd)
    if settings.embedded and needs_store:
        raise InvalidSettings(
            f"{settings.display} is a file, and functions are called by queues of a storage account: name one "
            f"(--store, {STORE_VARIABLE} or {HOST_VARIABLE}), or start Azurite and say UseDevelopmentStorage=true; "
            "graphs in a file are handled by taskgraph serve"
        )
    made = {name: value for name, value in merged.items() if name != STORE_VARIABLE}
    names = {HOST_VARIABLE, connection_name(merged)}
    if settings.embedded:
        pass  # the names of an app are known without one
    elif store or merged.get(STORE_VARIABLE):
        for name in names:
            made = {**_without(made, name), **_connection(name, settings)}
    elif not any(_speaks_of(setting, HOST_VARIABLE) for setting in made):
        made |= _connection(HOST_VARIABLE, settings)  # the host's own, where only the graphs' connection is set
    made.setdefault("FUNCTIONS_WORKER_RUNTIME", "python")
    made.setdefault("AZURE_FUNCTIONS_ENVIRONMENT", "Development")
    return Settings(made, settings)


def _connection(name: str, settings: StoreSettings) -> dict[str, str]:
    """A store as the host's settings have it: a connection string, or endpoints and an identity."""
    if settings.connection_string:
        return {name: settings.connection_string}
    made = {
        f"{name}__tableServiceUri": settings.table_endpoint,
        f"{name}__queueServiceUri": settings.queue_endpoint,
        f"{name}__blobServiceUri": settings.blob_endpoint,
    }
    if settings.managed_identity:
        made[f"{name}__credential"] = "managedidentity"
    if settings.client_id:
        made[f"{name}__clientId"] = settings.client_id
    return made


def _values(app: Path, file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    path = file or app / SETTINGS_FILE
    if file is None and not path.is_file():
        return {}
    whole = _read_object(path, "local.settings.example.json beside the app shows what stands in it")
    if whole.get("IsEncrypted"):
        raise InvalidSettings(f"{path} is encrypted, and only Core Tools have the key: func settings decrypt")
    values = _member(whole, path, "Values")
    for name, value in values.items():
        if not isinstance(value, str):
            raise InvalidSettings(f"{path}: Values.{name} is no text: put it in quotation marks")
    # A connection is all of its settings: half from here and half from there would be no connection.
    spoken = {
        name
        for name in values
        if name in environ
        or (not name.startswith(_OVERRIDES) and any(_speaks_of(given, name.partition("__")[0]) for given in environ))
    }
    return {name: value for name, value in values.items() if name not in spoken}


def _without(environ: Mapping[str, str], name: str) -> dict[str, str]:
    return {setting: value for setting, value in environ.items() if not _speaks_of(setting, name)}


def _speaks_of(setting: str, name: str) -> bool:
    return setting == name or setting.startswith(f"{name}__")


def _read_object(path: Path, remedy: str) -> dict[str, Any]:
    try:
        whole = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}; {remedy}") from error
    except ValueError as error:
        raise InvalidSettings(f"{path} is no JSON: {error}") from error
    if not isinstance(whole, dict):
        raise InvalidSettings(f"{path} is no JSON object")
    return whole


# --- the app ---------------------------------------------------------------------------------------------------


def packaged_app() -> Path:
    """The folder of the function app that comes with taskgraph: of the checkout, or of the installed package."""
    package = Path(taskgraph.__file__).resolve().parent
    for folder in (package.parent / "deploy", package / "deploy"):
        if (folder / APP_FILE).is_file() and (folder / HOST_FILE).is_file():
            return folder
    raise InvalidSettings(f"there is no function app beside {package}: name its folder with --app")


@dataclass(frozen=True, slots=True)
class Function:
    """A function as the worker reports it. id: the worker's, another one after each start.

    refused: why this host does not run it, or "". queue and schedule have their settings filled in. path: of an HTTP
    trigger, with the prefix of all; one that ends in `*` takes every path below it. level: what key it asks for.
    """

    name: str
    id: str
    trigger: str
    binding: str
    bindings: Sequence[Mapping[str, Any]]
    queue: str = ""
    connection: str = ""
    schedule: str = ""
    run_on_startup: bool = False
    use_monitor: bool = True
    binary: bool = False
    retries: int = 0
    path: str = ""
    methods: Sequence[str] = ()
    level: str = ""
    refused: str = ""

    def takes(self, method: str, path: str) -> bool:
        """Whether a request is for this function."""
        if method not in self.methods:
            return False
        return path.startswith(self.path[:-1]) if self.path.endswith("*") else path == self.path

    @property
    def poison_queue(self) -> str:
        """Where messages go that failed too often; "" for a queue that has no such place."""
        name = self.queue + _POISON
        return "" if self.queue.endswith(_POISON) or len(name) > _QUEUE_NAME_CHARS_MAX else name

    def as_object(self) -> dict[str, Any]:
        """What a machine reads of it."""
        made: dict[str, Any] = {"name": self.name, "trigger": self.trigger}
        if self.queue:
            made |= {"queue": self.queue, "connection": self.connection, "poisonQueue": self.poison_queue or None}
        if self.schedule:
            made |= {"schedule": self.schedule, "runOnStartup": self.run_on_startup}
        if self.path:
            made |= {"path": self.path, "methods": [*self.methods], "level": self.level}
        made |= {"bindings": [dict(binding) for binding in self.bindings], "refused": self.refused or None}
        return made


def functions_of(
    found: Sequence[Mapping[str, Any]], environ: Mapping[str, str], rules: HostJson, *, http: bool = True
) -> list[Function]:
    """What the worker reports, by name. http: HTTP triggers are called.

    environ: the app's, for `%NAME%` in bindings. Raises InvalidSettings.
    """
    prefix = rules.route_prefix
    return sorted((_function(each, environ, prefix, http=http) for each in found), key=lambda function: function.name)


def _function(found: Mapping[str, Any], environ: Mapping[str, str], prefix: str, *, http: bool) -> Function:
    name, bindings = str(found["name"]), list(found["bindings"])
    triggers = [each for each in bindings if str(each.get("type", "")).lower().endswith("trigger")]
    trigger = triggers[0] if len(triggers) == 1 else {}
    kind = str(trigger.get("type", ""))
    refused = ""
    if f"AzureWebJobs.{name}.Disabled" in environ or f"AzureWebJobs_{name}_Disabled" in environ:
        off = environ.get(f"AzureWebJobs.{name}.Disabled") or environ.get(f"AzureWebJobs_{name}_Disabled") or ""
        refused = "disabled by its setting" if off.lower() in ("1", "true") else ""
    path = _path(prefix, str(trigger.get("route") or name)) if kind == HTTP_TRIGGER else ""
    returned = [each for each in bindings if kind == HTTP_TRIGGER and each.get("type") == "http"]
    if kind not in ("queueTrigger", "timerTrigger", HTTP_TRIGGER):
        refused = f"{kind or 'no trigger'}: only queue, timer and HTTP triggers are run here"
    elif kind == HTTP_TRIGGER and not http:
        refused = f"{kind}: it is called with --http PORT alone"
    elif "{" in path:
        refused = f"a route with parameters ({path}), of which only a last one that takes all is read here"
    elif len(bindings) - len(returned) > 1:
        others = ", ".join(sorted({str(each.get("type")) for each in bindings if each not in (trigger, *returned)}))
        refused = f"further bindings ({others}), which are not filled here"

    def filled(member: str) -> str:
        return _filled(str(trigger.get(member) or ""), environ, name)

    return Function(
        name=name,
        id=str(found["id"]),
        trigger=kind,
        binding=str(trigger.get("name", "")),
        bindings=bindings,
        queue=filled("queueName"),
        connection=(filled("connection") or HOST_VARIABLE) if kind == "queueTrigger" else "",
        schedule=filled("schedule"),
        run_on_startup=bool(trigger.get("runOnStartup")),
        use_monitor=trigger.get("useMonitor") is not False,
        binary=str(trigger.get("dataType", "")).lower() == "binary",
        retries=int(found.get("retries", 0)),
        path=path,
        methods=[str(each).upper() for each in trigger.get("methods") or _METHODS] if path else (),
        level=str(trigger.get("authLevel") or "function").lower() if path else "",
        refused=refused,
    )


def _path(prefix: str, route: str) -> str:
    """The path of a route below the prefix of all. Raises InvalidSettings for one that Azure's host refuses."""
    if prefix and route.startswith("/"):
        raise InvalidSettings(
            f"the route {route} begins with /, and the host refuses {prefix}/{route}: say in {HOST_FILE} "
            'extensions.http.routePrefix "", as apps of ASGI need it'
        )
    whole = f"/{prefix}/{route}" if prefix else f"/{route.removeprefix('/')}"
    return f"{whole[: whole.index('{*')]}*" if whole.endswith("}") and "{*" in whole else whole


def _filled(text: str, environ: Mapping[str, str], function: str) -> str:
    """The text with every `%NAME%` replaced by that setting."""

    def value(found: "re.Match[str]") -> str:
        if found[1] not in environ:
            raise InvalidSettings(f"function {function}: {found[0]} names a setting that there is not: {found[1]}")
        return environ[found[1]]

    return _PLACEHOLDER.sub(value, text)
