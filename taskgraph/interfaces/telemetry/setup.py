"""From OpenTelemetry's own variables, or the connection string of Application Insights, to a `Telemetry`.

It imports nothing of OpenTelemetry unless it is asked to, and never replaces what the program around it has set up.
"""

import functools
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from taskgraph.engine.telemetry import OFF, Telemetry
from taskgraph.model.errors import InvalidSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

log = logging.getLogger("taskgraph.telemetry")

CONNECTION_VARIABLE: Final = "APPLICATIONINSIGHTS_CONNECTION_STRING"
PARENT_VARIABLE: Final = "TRACEPARENT"
"""The trace that a command belongs to; OpenTelemetry's convention for processes that start others."""

_OTLP: Final = "OTEL_EXPORTER_OTLP_"
_PROMETHEUS: Final = "prometheus"
"""Exporter of metrics alone: they are kept for who asks for them (`Telemetry.exposed`)."""
_EXPORTERS: Final = {"traces": ("otlp", "console", "none"), "metrics": ("otlp", "console", _PROMETHEUS, "none")}
_PROTOCOL: Final = "http/protobuf"
_ASKING: Final = (
    *("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"),
    *(f"{_OTLP}{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_")),
)

# What Microsoft's distribution would watch besides: requests to the store, with their addresses, and web frameworks.
_NOT_WATCHED: Final = ("azure_sdk", "django", "fastapi", "flask", "httpx", "psycopg2", "requests", "urllib", "urllib3")

_made: list[Telemetry] = []  # at most one: providers belong to the process


def configure(
    environ: Mapping[str, str], *, strict: bool = True, export_logs: bool = True, service_name: str = "taskgraph"
) -> Telemetry:
    """The telemetry of this process; the same one again for every later call.

    Where a tracer provider has been set before, that one is used and nothing is set up. strict: whether a
    package that is asked for and missing is an error; otherwise it is a warning in the log, and nothing is measured.
    export_logs: with Application Insights, whether log lines of taskgraph go there as well; not where the host collects
    them. service_name: what the process is called unless the environment says otherwise. Raises InvalidSettings.

    The exporters read the variables of the process itself; `environ` decides which exporters there are.
    """
    if _made:
        return _made[0]
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return OFF
    if _is_set_by_others():
        return _keep(_measuring(environ))
    try:
        if connection := environ.get(CONNECTION_VARIABLE, "").strip():
            return _keep(_azure_monitor(environ, connection, service_name, export_logs=export_logs))
        traces, metrics = _exporters(environ, "traces"), _exporters(environ, "metrics")
        if not traces and not metrics:
            return OFF
        return _keep(_otlp(environ, traces, metrics, service_name))
    except _MissingError as error:
        if strict:
            raise InvalidSettings(str(error)) from error
        log.warning("nothing is measured: %s", error)
        return OFF


def found() -> Telemetry:
    """What `configure` made, or what the program around has set up; otherwise `OFF`."""
    if _made:
        return _made[0]
    return _keep(_measuring({})) if _is_set_by_others() else OFF


def close(seconds: float = 5.0) -> None:
    """Send what has not been sent, for at most so long, and forget what was configured."""
    while _made:
        _made.pop().close(seconds)


class _MissingError(Exception):
    """A package that the settings ask for."""


def _keep(telemetry: Telemetry) -> Telemetry:
    _made.append(telemetry)
    return telemetry


def _is_set_by_others() -> bool:
    """Whether the program around has a tracer provider; without an import of OpenTelemetry it has none."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _measuring(
    environ: Mapping[str, str],
    closing: Sequence[Callable[[], object]] = (),
    expose: Callable[[], bytes] | None = None,
) -> Telemetry:
    from opentelemetry import metrics, trace

    from taskgraph.interfaces.telemetry.otel import SCOPE, OpenTelemetry

    return OpenTelemetry(
        trace.get_tracer(SCOPE, version()),
        metrics.get_meter(SCOPE, version()),
        parent=environ.get(PARENT_VARIABLE, ""),
        closing=closing,
        expose=expose,
    )


def version() -> str:
    """Of taskgraph: the package lies above this room, and is imported by now."""
    return str(getattr(sys.modules["taskgraph"], "__version__", ""))


def _exporters(environ: Mapping[str, str], signal: str) -> list[str]:
    """The exporters of a signal that are asked for. Raises InvalidSettings for an unknown one."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    if given := environ.get(variable, "").strip():
        names = [name.strip() for name in given.split(",") if name.strip()]
        if not set(names) <= set(_EXPORTERS[signal]):
            raise InvalidSettings(f"{variable}={given}: taskgraph knows {', '.join(_EXPORTERS[signal])}")
        names = [name for name in names if name != "none"]
    else:
        names = ["otlp"] if _first_set(environ, f"{_OTLP}ENDPOINT", f"{_OTLP}{signal.upper()}_ENDPOINT") else []
    protocol = _first_set(environ, f"{_OTLP}{signal.upper()}_PROTOCOL", f"{_OTLP}PROTOCOL")
    if "otlp" in names and protocol and environ[protocol].strip() != _PROTOCOL:
        raise InvalidSettings(f"{protocol}={environ[protocol].strip()}: taskgraph sends OTLP by {_PROTOCOL} alone")
    return names


def _first_set(environ: Mapping[str, str], *variables: str) -> str:
    """The first of these variables that is set, "" if none is."""
    return next((each for each in variables if environ.get(each, "").strip()), "")


def _otlp(environ: Mapping[str, str], traces: list[str], metrics: list[str], service_name: str) -> Telemetry:
    """Providers of the SDK, which reads sampler, resource, limits and the like from the environment by itself."""
    try:
        from opentelemetry import metrics as metrics_api
        from opentelemetry import trace as trace_api
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import (
            ConsoleMetricExporter,
            MetricExporter,
            MetricReader,
            PeriodicExportingMetricReader,
        )
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

        if "otlp" in (*traces, *metrics):
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        if _PROMETHEUS in metrics:
            from opentelemetry.exporter.prometheus import PrometheusMetricReader
            from prometheus_client import REGISTRY, generate_latest
    except ImportError as error:
        extras = [
            *(["otlp"] if {*traces, *metrics} - {_PROMETHEUS} else []),
            *([_PROMETHEUS] if _PROMETHEUS in metrics else []),
        ]
        raise _MissingError(
            f"{_first_set(environ, *_ASKING) or 'the environment'} asks for OpenTelemetry, which is not installed: "
            f"pip install 'taskgraph-scheduler[{','.join(extras)}]'"
        ) from error
    resource = _resource(environ, service_name)
    closing: list[Callable[[], object]] = []
    # Ended by `close`, within a bounded time; at exit they would wait for what does not answer.
    if traces:
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        for name in traces:
            spans: SpanExporter = OTLPSpanExporter() if name == "otlp" else ConsoleSpanExporter(out=sys.stderr)
            provider.add_span_processor(BatchSpanProcessor(spans))
        trace_api.set_tracer_provider(provider)
        closing.append(provider.shutdown)
    expose: Callable[[], bytes] | None = None
    if metrics:
        readers: list[MetricReader] = []
        for name in metrics:
            if name == _PROMETHEUS:
                readers.append(PrometheusMetricReader())
                expose = functools.partial(generate_latest, REGISTRY)  # with what it counts of every process
                continue
            numbers: MetricExporter = OTLPMetricExporter() if name == "otlp" else ConsoleMetricExporter(out=sys.stderr)
            readers.append(PeriodicExportingMetricReader(numbers))
        meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        metrics_api.set_meter_provider(meters)
        closing.append(meters.shutdown)
    return _measuring(environ, closing, expose)


def _resource(environ: Mapping[str, str], service_name: str) -> "Resource":
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    attributes = {SERVICE_VERSION: version()} if named else {SERVICE_NAME: service_name, SERVICE_VERSION: version()}
    return Resource.create(attributes)


def _azure_monitor(environ: Mapping[str, str], connection: str, service_name: str, *, export_logs: bool) -> Telemetry:
    """Application Insights, by Microsoft's distribution, with nothing watched but taskgraph's own spans."""
    try:
        from azure.monitor.opentelemetry import configure_azure_monitor
    except ImportError as error:
        raise _MissingError(
            f"{CONNECTION_VARIABLE} is set, and Azure Monitor's distribution of OpenTelemetry is not installed: "
            "pip install 'taskgraph-scheduler[azure-monitor]', or unset the variable, or say OTEL_SDK_DISABLED=true"
        ) from error
    from opentelemetry import metrics, trace

    # The distribution's own default takes five spans a second, whatever trace they belong to.
    sampled = {} if environ.get("OTEL_TRACES_SAMPLER", "").strip() else {"sampling_ratio": 1.0}
    try:
        configure_azure_monitor(
            connection_string=connection,
            resource=_resource(environ, service_name),
            logger_name="taskgraph",  # no other logger: those of the SDK would show addresses and headers
            disable_logging=not export_logs,
            enable_live_metrics=False,
            enable_performance_counters=False,
            instrumentation_options={name: {"enabled": False} for name in _NOT_WATCHED},
            **sampled,
        )
    except ValueError as error:
        raise InvalidSettings(f"{CONNECTION_VARIABLE} is no connection string of Application Insights") from error
    providers: list[Any] = [trace.get_tracer_provider(), metrics.get_meter_provider()]
    if export_logs:
        from opentelemetry._logs import get_logger_provider

        providers.append(get_logger_provider())
    return _measuring(environ, [each.shutdown for each in providers if hasattr(each, "shutdown")])
