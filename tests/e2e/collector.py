"""A collector on this machine, which keeps what it is sent: for tests of what processes export.

It speaks OTLP over HTTP, and as much of the ingestion of Application Insights as its exporter asks for.
"""

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """What has come: requests as they were, and the spans and metrics in them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: list[bytes] = []
        self.spans: list[tuple[str, Span]] = []
        self.metrics: list[tuple[str, Metric]] = []
        self.items: list[dict[str, Any]] = []  # of Application Insights
        self._lock = threading.Lock()

    def take(self, path: str, body: bytes) -> bytes:
        """Keep one request; gives the answer."""
        with self._lock:
            self.bodies.append(body)
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    name = _service(resource.resource)
                    self.spans += [(name, span) for scope in resource.scope_spans for span in scope.spans]
            elif path == "/v1/metrics":
                for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    name = _service(measured.resource)
                    self.metrics += [(name, metric) for scope in measured.scope_metrics for metric in scope.metrics]
            elif path.endswith("/track"):
                items = json.loads(body)
                self.items += items
                return json.dumps({"itemsReceived": len(items), "itemsAccepted": len(items), "errors": []}).encode()
        return b""

    def named(self, name: str) -> list[Span]:
        """Spans of one name."""
        return [span for _, span in self.spans if span.name == name]


def _service(resource: Any) -> str:
    return next((each.value.string_value for each in resource.attributes if each.key == "service.name"), "")


def attributes(span: Span) -> dict[str, Any]:
    """Attributes of a span, as plain values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value") for each in span.attributes}


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector while the body runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer = collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/json" if answer else "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
