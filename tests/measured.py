"""What a telemetry measured, for tests: spans and numbers in memory instead of an exporter."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from taskgraph.interfaces.telemetry.otel import SCOPE, OpenTelemetry


class Measured:
    """Spans and metrics of one process or of several. `telemetry()` makes one that writes here."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._tracers = TracerProvider(shutdown_on_exit=False)
        self._tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._registry = CollectorRegistry()
        readers = [self._reader, PrometheusMetricReader(registry=self._registry)]
        self._meters = MeterProvider(readers, shutdown_on_exit=False)

    def _exposed(self) -> bytes:
        return generate_latest(self._registry)

    def telemetry(self, *, parent: str = "") -> OpenTelemetry:
        """A telemetry as a process has one: with a memory of its own."""
        return OpenTelemetry(
            self._tracers.get_tracer(SCOPE), self._meters.get_meter(SCOPE), parent=parent, expose=self._exposed
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """Those that have ended, in that order."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """Spans of one name."""
        return [span for span in self.spans if span.name == name]

    def metrics(self) -> dict[str, Any]:
        """Name -> metric, as the SDK gives it."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def counts(self, name: str, *by: str) -> Counter[Any]:
        """A counter's sums (or how many values a histogram has), by the values of some attributes."""
        found: Counter[Any] = Counter()
        metric = self.metrics().get(name)
        for point in metric.data.data_points if metric is not None else ():
            key = tuple(point.attributes[attribute] for attribute in by)
            found[key[0] if len(key) == 1 else key] += (
                int(point.value) if isinstance(point, NumberDataPoint) else point.count
            )
        return found


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """Attributes of a span, never None."""
    return span.attributes or {}


def trace_id(span: ReadableSpan) -> int:
    """The trace of a span."""
    return span.get_span_context().trace_id  # type: ignore[no-any-return,union-attr]


def text_of(measured: Measured) -> str:
    """Everything that was measured, as one text to look through."""
    return "\n".join(
        [*(span.to_json() for span in measured.spans), *(str(each) for each in measured.metrics().values())]
    )
