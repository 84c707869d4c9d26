"""What reaches a terminal, a pipe and a program."""

import io
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.cli.events import looks_like
from taskgraph.interfaces.cli.output import (
    LOOKS,
    Column,
    LogText,
    Output,
    Stream,
    cell_width,
    count,
    fitted,
    json_text,
    moment,
    safe,
    seconds,
)
from taskgraph.interfaces.cli.tasks import recorded_reason
from taskgraph.interfaces.views import fields_of, iso, plain
from taskgraph.model.row_schema import USUAL
from taskgraph.model.states import GraphState, TaskState
from taskgraph.queries.values import GroupState


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Pipe(io.StringIO):
    encoding = "utf-8"


ATTACKS = {
    "\x1b[2J": "\\x1b[2J",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "\x9b31m": "\\x9b31m",
    "\x7f\x08": "\\x7f\\x08",
    "a\nb\tc\rd": "a\\nb\\tc\\rd",
    "\u202etxt.exe": "\\u202etxt.exe",
    "\u2066x\u2069": "\\u2066x\\u2069",
    "\u200e\u200f\u061c": "\\u200e\\u200f\\u061c",
    "\u2028\u2029": "\\u2028\\u2029",
    "\ufeff\u200b": "\\ufeff\\u200b",
    "\U000e0041": "\\U000e0041",
    "\ud800": "\ufffd",
    "[red]x[/red]": "[red]x[/red]",
}


@pytest.mark.parametrize(("text", "shown"), ATTACKS.items())
def test_what_a_terminal_would_obey_is_spelt_out(text: str, shown: str) -> None:
    assert safe(text) == shown


@pytest.mark.parametrize(
    "text", ["plain", "über", "日本語", "a/b@c (d), e+f", "👩\u200d👧", "نمی\u200cخواهم", "a\u00a0b"]
)
def test_what_people_write_stays(text: str) -> None:
    assert safe(text) == text


@given(st.text())
def test_nothing_unsafe_passes(text: str) -> None:
    shown = safe(text)
    assert safe(shown) == shown
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_means_the_same_and_is_safe(value: object) -> None:
    for ascii_only in (False, True):
        text = json_text(value, ascii_only=ascii_only)
        assert json.loads(text) == json.loads(json.dumps(value))
        assert all(safe(line) == line for line in text.split("\n"))


def test_json_shows_letters_as_they_are() -> None:
    assert json_text({"ü": "\u202e\x1b"}, indent=None) == '{"ü": "\\u202e\\u001b"}'
    assert json_text("ü", ascii_only=True) == '"\\u00fc"'


def test_json_of_times() -> None:
    assert json.loads(json_text({"at": datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)})) == {
        "at": "2026-01-02T03:04:05.678Z"
    }


# --- logs ---


def test_a_log_keeps_its_colours_and_nothing_else() -> None:
    log = LogText()
    shown = log.take("\x1b[31mred\x1b[0m \x1b[2J\x1b]0;pwn\x07 50%\r100%\r\ndone\n")
    assert shown == "\x1b[31mred\x1b[0m \\x1b[2J\\x1b]0;pwn\\x07 50%\n100%\ndone\n"
    assert log.end() == "\x1b[0m"


def test_a_log_without_colours() -> None:
    log = LogText(colour=False)
    assert log.take("\x1b[1;31mred\x1b[0m\n") + log.end() == "red\n"


@given(st.text(alphabet="a\x1b[31;m\r\n\u202e"), st.data())
def test_a_log_in_pieces_is_the_same_log(text: str, data: st.DataObject) -> None:
    whole = LogText()
    expected = whole.take(text) + whole.end()
    pieces = LogText()
    shown = ""
    while text:
        length = data.draw(st.integers(1, len(text)))
        shown += pieces.take(text[:length])
        text = text[length:]
    assert shown + pieces.end() == expected


# --- numbers and times ---


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.00 s"),
        (9.994, "9.99 s"),
        (12.34, "12.3 s"),
        (60, "1 min 00 s"),
        (308, "5 min 08 s"),
        (3_600, "1 h 00 min"),
        (12_000, "3 h 20 min"),
        (200_000, "2 d 07 h"),
    ],
)
def test_lengths_of_time(value: float, text: str) -> None:
    assert seconds(value) == text


def test_counts() -> None:
    assert count(1, "task") == "1 task"
    assert count(2_000, "task") == "2,000 tasks"
    assert count(0, "retry", "retries") == "0 retries"


@pytest.mark.parametrize(
    ("outcome", "reason", "shown"),
    [
        ("lost", "worker vm-1 was lost", ""),
        ("handed-back", "worker vm-1 was stopped", "was stopped"),
        ("failed", "exit code 6", "exit code 6"),
        ("failed", None, ""),
    ],
)
def test_the_reason_of_a_run_says_nothing_twice(outcome: str, reason: str | None, shown: str) -> None:
    assert recorded_reason({"run": 0, "outcome": outcome, "worker": "vm-1", "reason": reason}) == shown


def test_the_number_of_edges_has_one_name_each(tmp_path: Path) -> None:
    tasks = {"a": {"task": {}}, "b": {"task": {}}, **{name: {"requires": ["g"], "task": {}} for name in "cde"}}
    file = tmp_path / "g.json"
    store = f"sqlite:///{tmp_path}/s.db"
    file.write_text(json.dumps({"tasks": tasks, "groups": {"g": {"tasks": ["a", "b"]}}}))
    run = CliRunner().invoke
    assert run(commands, ["validate", str(file)]).stdout.strip().endswith("valid, 5 tasks, 5 kept edges")
    assert "6, kept as 5 by way of groups" in run(commands, ["plan", str(file)]).stdout
    assert "5 kept edges" in run(commands, ["submit", str(file), "--id", "x", "--store", store]).stderr
    shown = run(commands, ["status", "x", "--store", store]).stdout
    assert "5" in next(line for line in shown.splitlines() if line.startswith("kept edges"))


def test_times_are_in_utc() -> None:
    time = datetime(2026, 1, 1, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    assert moment(time) == "2025-12-31 23:00:00Z"
    assert iso(time) == "2025-12-31T23:00:00.000Z"
    assert moment(None) == ""
    assert iso(None) is None


def test_camel_case() -> None:
    @dataclass(frozen=True, slots=True)
    class Thing:
        graph_id: str
        reruns_left: int
        counts: dict[str, int]

    assert fields_of(Thing("g", 2, {"a_b": 1})) == {"graphId": "g", "rerunsLeft": 2, "counts": {"a_b": 1}}


# --- streams ---


def test_every_state_has_a_symbol_and_a_word() -> None:
    words = {"active", "draining", "drained", "gone"}  # of workers
    assert {*TaskState, *GraphState, *GroupState, *words, "held", "paused", "finished with failures"} == set(LOOKS)
    assert all(look.symbol and look.plain.isascii() for look in LOOKS.values())
    stream = Stream(Pipe(), {})
    assert stream.state("failed") == "✗ failed"
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert Stream(ascii_only, {}).state("failed") == "x failed"


def test_a_graph_that_ended_with_failures_does_not_look_well() -> None:
    stream = Stream(Pipe(), {"FORCE_COLOR": "1"})
    assert stream.graph_state("finished", failures=False) == "\x1b[32m✓ finished\x1b[0m"
    assert stream.graph_state("finished", failures=True) == "\x1b[33m▲ finished with failures\x1b[0m"
    assert stream.graph_state("blocked", failures=True) == stream.state("blocked")
    assert not {look.style for name, look in LOOKS.items() if "failures" in name} & {"green"}


def test_colours_only_on_a_terminal() -> None:
    assert Stream(Terminal(), {"TERM": "xterm"}).paint("x", "red") == "\x1b[31mx\x1b[0m"
    for file, environ in (
        (Pipe(), {"TERM": "xterm"}),
        (Terminal(), {"TERM": "dumb"}),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}),
    ):
        assert Stream(file, environ).paint("x", "red") == "x"
    assert Stream(Terminal(), {"TERM": "xterm"}).live
    assert not Stream(Terminal(), {"TERM": "dumb"}).live
    assert not Stream(Pipe(), {"TERM": "xterm"}).live


def test_colours_can_be_forced_and_a_picture_cannot() -> None:
    assert Stream(Pipe(), {"FORCE_COLOR": "1"}).paint("x", "red") == "\x1b[31mx\x1b[0m"
    assert Stream(Terminal(), {"TERM": "dumb", "FORCE_COLOR": "1"}).colour
    assert not Stream(Pipe(), {"FORCE_COLOR": ""}).colour
    assert not Stream(Terminal(), {"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}).colour
    assert not Stream(Pipe(), {"FORCE_COLOR": "1"}).live


def test_words_and_data_go_apart() -> None:
    out, err = Pipe(), Pipe()
    output = Output(out, err, {})
    output.data("data \x1b")
    output.document({"a": 1})
    output.say("words \x1b")
    output.hint("hint")
    output.warn("careful")
    output.fail("no")
    assert out.getvalue() == 'data \\x1b\n{\n  "a": 1\n}\n'
    assert err.getvalue() == "words \\x1b\nhint\nwarning: careful\nerror: no\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as file:
        stream = Stream(file, {})
        stream.line("x" * 100_000)
        assert stream.closed
        stream.line("goes nowhere")


def test_what_an_encoding_lacks_is_escaped() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    output = Output(file, Pipe(), {})
    output.data("ü ✗")
    output.document("ü")
    assert raw.getvalue() == b'\\xfc \\u2717\n"\\u00fc"\n'


def test_a_table_in_a_pipe_is_whole_and_aligned() -> None:
    out = Pipe()
    label = "x" * 300
    Output(out, Pipe(), {}).table(
        [("failed", label, "7"), ("completed", "a\x1b[31m", "12")],
        [
            Column("STATE", itemgetter(0), state=True),
            Column("TASK", itemgetter(1), flexible=True),
            Column("RUN", itemgetter(2), number=True),
        ],
    )
    lines = out.getvalue().splitlines()
    assert lines[0] == f"STATE        {'TASK'.ljust(300)}  RUN"
    assert lines[1] == f"✗ failed     {label}    7"
    assert lines[2].startswith("✓ completed  a\\x1b[31m ")
    assert lines[2].endswith("   12")


@pytest.mark.parametrize("columns", [30, 40, 80])
def test_a_table_on_a_terminal_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    Output(out, Pipe(), {"TERM": "dumb"}).table(
        [("1", "日本語" * 40, "z" * 100), ("2", "short", "")],
        [
            Column("ID", itemgetter(0)),
            Column("TASK", itemgetter(1), flexible=True),
            Column("WHY", itemgetter(2), flexible=True),
        ],
    )
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert all(cell_width(line) <= columns for line in lines)
    assert "…" in lines[1]


def test_cutting_minds_wide_characters() -> None:
    assert fitted("日本語", 5) == "日本…"
    assert fitted("日本語", 4) == "日… "
    assert fitted("ab", 4, right=True) == "  ab"
    assert cell_width("日本e\u0301") == 5


def test_every_fact_is_drawn_as_a_state() -> None:
    assert [kind for kind in USUAL if looks_like(kind) not in LOOKS] == []
    assert looks_like("task-retry") == TaskState.PENDING
    assert looks_like("graph-extended") == TaskState.UNSCHEDULED


def test_no_dataclass_becomes_json_by_accident() -> None:
    @dataclass
    class Inner:
        number: int = 1

    @dataclass
    class Outer:
        inner: tuple[Inner, ...] = (Inner(),)

    with pytest.raises(TypeError, match="Inner is no JSON value"):
        fields_of(Outer())
    with pytest.raises(TypeError, match="Inner is no JSON value"):
        plain({"a": [Inner()]})
    with pytest.raises(TypeError, match="Inner is no JSON value"):
        json_text({"a": [Inner()]})
