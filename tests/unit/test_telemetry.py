"""Keys in messages, lines of the log, what the environment asks for, and what is told of errors."""

import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgraph.engine.poison import origin_of
from taskgraph.engine.telemetry import (
    HANDLED,
    NO_MARKS,
    OFF,
    Here,
    Marks,
    Origin,
    being,
    fields_of,
    graph_in,
    here,
    marked,
    marks_of,
    note,
    say_handled,
    seconds_since,
    timestamp,
    trace_and_span,
    watched,
)
from taskgraph.interfaces.cli.common import Session, set_up_logging
from taskgraph.interfaces.cli.loglines import JsonLines
from taskgraph.interfaces.cli.output import Output
from taskgraph.interfaces.telemetry import setup
from taskgraph.interfaces.telemetry.otel import INSTRUMENTS, SPANS
from taskgraph.model import limits
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import InvalidSettings, StorageUnavailable, trail
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import (
    EVENT_TYPES,
    MESSAGE_TYPES,
    AddTasks,
    Edit,
    Message,
    Rerun,
    RunTasks,
    TaskCompleted,
    TaskResult,
    parse,
    to_text,
)
from taskgraph.storage.queues import Delivery
from tests.measured import Measured, attributes

ROOT = Path(__file__).resolve().parents[2]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1111651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SENT = "2030-01-31T12:00:00.123Z"
TASK = task_id_of("g", "a")
MESSAGES = [
    AddTasks("g", "r"),
    Edit("g", "r"),
    Rerun("g", ((TASK, 0),), "why"),
    RunTasks("g", "default", ((TASK, 3),)),
    TaskCompleted("g", (TaskResult(TASK, 0, "c", "2030-01-31T12:00:00Z", {"failed": False}),)),
]


# --- keys in messages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_is_the_same_with_its_trace(message: Any):
    body = marked(to_text(message), TRACE, SENT)
    assert json.loads(body) == {"traceparent": TRACE, "sent": SENT, **json.loads(to_text(message))}
    assert parse(body) == message
    assert marks_of(body) == Marks(TRACE, SENT)
    assert graph_in(body) == graph_in(to_text(message)) == (json.loads(body)["type"], "g")
    assert marked(body, OTHER, SENT) == body, "it has its trace already"


def test_a_message_without_a_trace_says_when_it_was_sent():
    body = marked(to_text(MESSAGES[0]), "", SENT)
    assert marks_of(body) == Marks("", SENT)
    assert graph_in(body) == ("add-tasks", "g")


def test_a_message_that_would_be_too_large_goes_without():
    body = to_text(Rerun("g", ((TASK, 0),), ""))
    room = len(marked(body, TRACE, SENT)) - len(body)
    for over in (0, 1):
        long = body[:-1] + f',"more":"{"x" * (limits.MESSAGE_BYTES_MAX - len(body) - room - 10 + over)}"' + "}"
        assert (marked(long, TRACE, SENT) == long) is bool(over)
        assert len(marked(long, TRACE, SENT)) <= limits.MESSAGE_BYTES_MAX


@pytest.mark.parametrize("body", ["", "{", "no JSON", "[]", '{"a":1}', "eyJ2ZXJzaW9uIjoxfQ==", "\ufeff{}"])
def test_what_is_none_of_our_messages_stays_as_it_is(body: str):
    assert marked(body, TRACE, SENT) == body
    assert marks_of(body) == NO_MARKS
    assert graph_in(body) == ("", "")


def test_keys_are_found_in_any_order_and_only_as_what_they_are():
    assert marks_of(json.dumps({"type": "rerun", "sent": SENT, "traceparent": TRACE}, indent=1)) == Marks(TRACE, SENT)
    assert marks_of(json.dumps({"resolution": {"traceparent": TRACE}})) == NO_MARKS
    assert marks_of(json.dumps({"text": f'"traceparent":"{TRACE}"'})) == NO_MARKS
    assert marks_of(json.dumps({"traceparent": 1, "sent": []})) == NO_MARKS
    assert marks_of('{"traceparent":' * 50_000) == NO_MARKS
    zero = "00-" + "0" * 32 + "-b7ad6b7169203331-01"
    assert marks_of(marked(to_text(MESSAGES[0]), zero, SENT)).traceparent == ""


def test_the_types_that_are_known_here_are_those_of_messages():
    for kind in (*EVENT_TYPES, "run-tasks"):
        assert graph_in(f'{{"version":1,"type":"{kind}","graph":"g"}}') == (kind, "g")
    assert graph_in('{"version":1,"type":"something-else","graph":"g"}') == ("", "")


@given(st.text(max_size=200))
def test_no_text_troubles_a_reader(text: str):
    marks_of(text)
    graph_in(text)
    assert marks_of(f'{{"traceparent":{text}') is not None


def test_ages():
    now = datetime(2030, 1, 31, 12, 0, 1, 123000, tzinfo=UTC)
    assert timestamp(now) == "2030-01-31T12:00:01.123Z"
    assert seconds_since(SENT, now) == 1.0
    assert seconds_since(timestamp(now + timedelta(hours=1)), now) == 0.0, "clocks differ"
    for wrong in ("", "yesterday", "2030-01-31T12:00:00.123"):
        assert seconds_since(wrong, now) is None


# --- where in which trace --------------------------------------------------------------------------------------


def test_what_is_open_is_open_for_its_graph_alone():
    assert trace_and_span() == ("", "")
    with being(Here("g", TRACE)):
        assert here("g") is not None
        assert here("h") is None
        assert trace_and_span() == (TRACE[3:35], TRACE[36:52])
        with being(None):
            assert here("g") is not None
    assert here("g") is None


def test_what_a_background_task_of_another_graph_sends_is_in_its_own_trace():
    telemetry = Measured().telemetry()
    telemetry.met("h", OTHER)
    with being(Here("g", TRACE)):
        assert telemetry.cause("g") == TRACE
        assert telemetry.cause("h") == OTHER
        assert telemetry.cause("i") == ""
        assert telemetry.cause("g", marked(to_text(MESSAGES[0]), OTHER, SENT)) == OTHER


def test_messages_of_several_traces_are_one_span_with_links():
    measured = Measured()
    origins = [
        Origin("q", str(n), marks=Marks(each, SENT), type="task-completed") for n, each in enumerate((TRACE, OTHER))
    ]
    with measured.telemetry().handling("g", origins, SystemClock()):
        note("failed", "1")
    (span,) = measured.named("taskgraph.handle")
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == TRACE[3:35]
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [OTHER[3:35]]
    assert attributes(span)["taskgraph.outcome"] == ("failed", "handled")
    assert measured.counts("taskgraph.messages", "taskgraph.outcome") == {"handled": 1, "failed": 1}


def test_the_memory_of_graphs_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("taskgraph.interfaces.telemetry.otel._GRAPHS_MAX", 10)
    telemetry = Measured().telemetry()
    for number in range(100):
        telemetry.met(f"g{number}", TRACE)
        assert telemetry.cause(f"g{number}") == TRACE
    assert len(telemetry._graphs) <= 10


def test_an_error_of_who_asks_is_told_by_its_type_alone():
    measured = Measured()
    with pytest.raises(ValueError, match="canary"), measured.telemetry().asking("submit", "g"):
        raise ValueError("canary")
    (span,) = measured.spans
    assert attributes(span)["error.type"] == "ValueError"
    assert not span.status.is_ok
    assert "canary" not in span.to_json()


async def test_a_receive_that_fails_is_counted_and_raised():
    class Gone:
        async def receive(self, queue: str, **_: Any) -> Any:
            raise StorageUnavailable("no answer")

    measured = Measured()
    queues = measured.telemetry().queues(Gone(), SystemClock())  # type: ignore[arg-type]
    with pytest.raises(StorageUnavailable):
        await queues.receive("q", lease_seconds=1)
    assert measured.counts("taskgraph.storage.operations", "taskgraph.outcome") == {"unavailable": 1}


# --- lines -----------------------------------------------------------------------------------------------------


def test_a_line_says_names_and_numbers():
    completed = next(each for each in MESSAGES if isinstance(each, TaskCompleted))
    delivery = Delivery("taskgraph-events", "7", "receipt", marked(to_text(completed), TRACE, SENT), 2)
    origin = origin_of(completed, delivery, 0.0)
    assert fields_of(origin, 0.0123) == {
        "type": "task-completed",
        "queue": "taskgraph-events",
        "graph": "g",
        "task": TASK,
        "run": 0,
        "messageId": "7",
        "dequeueCount": 2,
        "outcome": "handled",
        "ms": 12.3,
        "traceId": TRACE[3:35],
        "spanId": TRACE[36:52],
    }
    many = RunTasks("g", "default", ((TASK, 0), (task_id_of("g", "b"), 0)))
    told = fields_of(origin_of(many, None, 0.0), 0.0)
    assert told["tasks"] == 2
    assert "task" not in told
    assert origin_of(Rerun("g", ((TASK, 4),), "secret"), None, 0.0).run == 4


def test_nothing_is_formatted_while_nobody_listens():
    assert not watched(OFF)
    HANDLED.setLevel(logging.INFO)
    try:
        assert watched(OFF)
    finally:
        HANDLED.setLevel(logging.NOTSET)


@contextlib.contextmanager
def speaking(log_format: str | None, *, verbose: int = 0) -> Iterator[io.StringIO]:
    words = io.StringIO()
    loggers = [logging.getLogger(name) for name in ("", "opentelemetry", "taskgraph.handled", "taskgraph.cli")]
    before = [(each.handlers[:], each.propagate, each.level) for each in loggers]
    try:
        set_up_logging(Session(Output(err=words), verbose=verbose), log_format)
        yield words
    finally:
        for each, (handlers, propagate, level) in zip(loggers, before, strict=True):
            each.handlers[:], each.propagate = handlers, propagate
            each.setLevel(level)


def test_lines_of_json():
    with speaking("json") as words:
        with being(Here("g", TRACE)):
            logging.getLogger("taskgraph.worker").warning("two\nlines, and %s", "é\x1b[31m")
        say_handled(Origin("q", "1", type="rerun", graph="g"), 0.001)
        logging.getLogger("taskgraph.worker").info("not without -v")
        logging.getLogger("somebody.else").warning("a warning of a library")
        try:
            raise KeyError("canary")
        except KeyError:
            logging.getLogger("taskgraph.worker").exception("broken")
    first, second, third, last = [json.loads(line) for line in words.getvalue().splitlines()]
    assert words.getvalue().isascii()
    assert {key: first[key] for key in ("level", "logger", "message", "traceId", "spanId")} == {
        "level": "warning",
        "logger": "taskgraph.worker",
        "message": "two\nlines, and é\x1b[31m",
        "traceId": TRACE[3:35],
        "spanId": TRACE[36:52],
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (second["message"], second["type"], second["outcome"], second["ms"]) == ("handled", "rerun", "handled", 1.0)
    assert third["logger"] == "somebody.else"
    assert "canary" not in words.getvalue()
    assert last["exception"].startswith("KeyError < test_lines_of_json")


def test_lines_of_text_are_there_with_v():
    with speaking(None) as words:
        say_handled(Origin("q", "1", type="rerun", graph="g"), 0.001)
        assert not watched(OFF)
    assert words.getvalue() == ""
    with speaking("text", verbose=1) as words:
        say_handled(Origin("q", "1", type="rerun", graph="g"), 0.001)
    assert "handled type=rerun queue=q graph=g messageId=1 dequeueCount=1 outcome=handled ms=1.0" in words.getvalue()


def test_a_format_that_nobody_knows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TASKGRAPH_LOG_FORMAT", "xml")
    with pytest.raises(InvalidSettings, match="TASKGRAPH_LOG_FORMAT=xml: write text or json"), speaking(None):
        pass
    with speaking("json"):
        pass


def test_a_trail_has_the_way_and_not_the_words():
    def inner() -> None:
        raise RuntimeError("canary")

    with pytest.raises(RuntimeError) as caught:
        inner()
    told = trail(caught.value)
    assert told.startswith("RuntimeError < ")
    assert "inner (test_telemetry.py:" in told
    assert "canary" not in told


def test_a_record_without_fields_is_a_line_as_well():
    record = logging.LogRecord("n", logging.INFO, "", 0, "%s", ("x",), None)
    assert json.loads(JsonLines().format(record))["message"] == "x"


# --- what the environment asks for -----------------------------------------------------------------------------


def test_nothing_is_asked_for():
    assert setup.configure({}) is OFF
    assert setup.configure({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is OFF
    assert setup.configure({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h"}) is OFF


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin: taskgraph knows otlp, console, none"),
        ({"OTEL_TRACES_EXPORTER": "prometheus"}, "OTEL_TRACES_EXPORTER=prometheus: taskgraph knows"),
        (
            {"OTEL_METRICS_EXPORTER": "zipkin"},
            "OTEL_METRICS_EXPORTER=zipkin: taskgraph knows otlp, console, prometheus",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: taskgraph sends OTLP by http/protobuf alone",
        ),
        ({"APPLICATIONINSIGHTS_CONNECTION_STRING": "canary"}, "APPLICATIONINSIGHTS_CONNECTION_STRING is no connection"),
    ],
)
def test_what_makes_no_sense_is_said_with_its_variable(environ: dict[str, str], words: str):
    with pytest.raises(InvalidSettings) as caught:
        setup.configure(environ)
    assert str(caught.value).startswith(words)
    assert "canary" not in str(caught.value)


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, as providers belong to one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TASKGRAPH_"))}
    return subprocess.run(
        [sys.executable, "-c", code], env={**kept, **environ}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("module", "variable", "value", "extra"),
    [
        ("opentelemetry", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9", "otlp"),
        ("azure.monitor", "APPLICATIONINSIGHTS_CONNECTION_STRING", "http://127.0.0.1:9", "azure-monitor"),
        ("opentelemetry.exporter.prometheus", "OTEL_METRICS_EXPORTER", "prometheus", "prometheus"),
        ("opentelemetry", "OTEL_METRICS_EXPORTER", "prometheus,console", "otlp,prometheus"),
    ],
)
def test_a_package_that_is_missing_is_said_with_its_extra(
    module: str, variable: str, value: str, extra: str, tmp_path: Path
):
    """As where it is not installed: the import is refused."""
    hide = f"import sys; sys.modules[{module!r}] = None; "
    store = f"sqlite:///{tmp_path}/store.db"
    command = "sys.argv = ['taskgraph', 'worker']; from taskgraph.__main__ import main; main()"
    ended = python(hide + command, TASKGRAPH_STORE=store, **{variable: value})
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert variable in line
    assert f"pip install 'taskgraph-scheduler[{extra}]'" in line
    lenient = "import logging, os; from taskgraph.interfaces.telemetry import setup as t; logging.basicConfig(); "
    ended = python(hide + lenient + "print(t.configure(os.environ, strict=False).enabled)", **{variable: value})
    assert ended.stdout == "False\n"
    assert f"[{extra}]" in ended.stderr


def test_nothing_of_opentelemetry_is_imported_unless_it_is_wanted(tmp_path: Path):
    code = """
import sys
sys.argv = ["taskgraph", "run", "graph.json"]
from taskgraph.__main__ import main
try:
    main()
finally:
    print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    (tmp_path / "graph.json").write_text('{"tasks": {"a": {"task": {}}}}')
    ended = python(f"import os; os.chdir({str(tmp_path)!r}){code}", TASKGRAPH_STORE=f"sqlite:///{tmp_path}/s.db")
    assert ended.returncode == 0
    assert ended.stdout.endswith("[]\n")


def test_what_the_program_has_set_up_is_used_and_nothing_else_is():
    code = """
import asyncio, os
from pathlib import Path
from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
from taskgraph import Client, Graph; from taskgraph.interfaces.telemetry import setup as telemetry_setup
telemetry = telemetry_setup.configure({"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"})
assert telemetry is telemetry_setup.found() and telemetry.enabled
assert trace.get_tracer_provider() is provider
assert type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")
async def main():
    async with Client() as client:
        with trace.get_tracer("mine").start_as_current_span("mine"):
            graph = Graph()
            graph.task("a")
            await client.submit(graph, "g")
asyncio.run(main())
telemetry_setup.close()
mine, submit = sorted(spans.get_finished_spans(), key=lambda span: span.start_time)[:2]
assert (mine.name, submit.name) == ("mine", "taskgraph.submit"), (mine.name, submit.name)
assert submit.parent.span_id == mine.context.span_id
"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ended = python(code, TASKGRAPH_STORE=f"sqlite:///{folder}/s.db")
    assert ended.stderr == ""
    assert ended.returncode == 0


def test_who_does_not_answer_holds_nobody_up():
    code = """
import logging, os, time
from taskgraph.interfaces.telemetry import setup as telemetry_setup
logging.disable(logging.CRITICAL)
telemetry = telemetry_setup.configure(os.environ)
with telemetry.asking("submit", "g"):
    pass
began = time.monotonic()
telemetry_setup.close(0.5)
print(time.monotonic() - began)
"""
    import socket

    with socket.socket() as silent:  # takes connections, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        ended = python(code, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) < 3


# --- the page --------------------------------------------------------------------------------------------------


def page() -> str:
    return (ROOT / "docs" / "how-to" / "telemetry.md").read_text("utf-8")


def test_the_page_lists_every_metric_as_it_is():
    listed = re.findall(r"^\| `([a-z]+\.[a-z.]+)` \| ([a-z -]+) \| `([^`]+)` \| (.*?) \|", page(), re.MULTILINE)
    ours = [
        (each.name, each.kind, each.unit, ", ".join(f"`{name}`" for name in each.attributes)) for each in INSTRUMENTS
    ]
    assert listed == ours


def test_the_page_lists_every_span():
    listed = re.findall(r"^\| `(taskgraph\.[a-z-]+)` \| (?!counter|histogram|up-down counter)", page(), re.MULTILINE)
    asked = {f"taskgraph.{each.asked_as}" for each in MESSAGE_TYPES.values()}  # one line of the page: `<type>`
    assert listed == [each for each in SPANS if each not in asked]


# --- no type of message is forgotten ----------------------------------------------------------------------------


def test_every_message_has_its_type_in_the_table():
    assert {each.of for each in MESSAGE_TYPES.values()} == set(typing.get_args(Message))
    assert all(name == type_of_class(each.of) for name, each in MESSAGE_TYPES.items())
    assert {*EVENT_TYPES, "run-tasks"} == MESSAGE_TYPES.keys()


def type_of_class(kind: type) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def test_whatever_is_asked_for_opens_a_span_of_the_table():
    asked = set()
    for path in (ROOT / "taskgraph").rglob("*.py"):
        asked |= set(re.findall(r"\.asking\(\"([^\"]*)\"", path.read_text()))
        assert not re.search(r"\.asking\((?!\")", path.read_text()), f"{path.name}: what is asked for is no literal"
    assert asked == {"submit", *(each.asked_as for each in MESSAGE_TYPES.values() if each.asked_as)}
    assert {f"taskgraph.{each}" for each in asked} < set(SPANS)


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_a_graph_that_is_heard_of_by_a_request_does_not_take_the_trace_of_who_asks(kind: str):
    measured = Measured()
    telemetry = measured.telemetry()
    with telemetry.handling("g", [Origin("q", "1", marks=Marks(TRACE, SENT), type=kind)], SystemClock()):
        pass
    asked = MESSAGE_TYPES[kind].asked_as
    assert telemetry.cause("g") == ("" if asked else TRACE)
