"""Lines of many tasks on one stream: what stands before them, and what is left of them."""

import asyncio

import pytest

from taskgraph.interfaces.cli.output import Stream
from taskgraph.interfaces.cli.prefixed import Echo, Prefixes, clean_lines
from taskgraph.worker.executors import Work
from tests.unit.test_cli_output import Pipe, Terminal


def test_prefixes_are_aligned_and_cut_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "a label of many words, too long to stand before a line"
    plain = Prefixes(Stream(Pipe(), {}))
    plain.expect(["bb", "a\x1b"])
    assert [plain.of(label) for label in ("bb", "a\x1b", "c")] == ["bb    │ ", "a\\x1b │ ", "c     │ "]
    assert plain.of(long) == f"{long} │ "
    assert plain.of("c") == f"{'c':24} │ "
    monkeypatch.setenv("COLUMNS", "30")
    narrow = Prefixes(Stream(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}))
    assert narrow.of(long) == "a label o… │ "


def test_a_task_has_the_same_colour_every_time() -> None:
    terminal = Stream(Terminal(), {"TERM": "xterm"})
    first, second = Prefixes(terminal), Prefixes(terminal)
    second.of("other")
    assert first.of("compile").split("m")[0] == second.of("compile").split("m")[0] != "compile │ "
    assert len({first.of(f"task {n}").split("m")[0] for n in range(50)}) > 1


def test_lines_are_cleaned() -> None:
    data = b"\x1b[31mred\nplain\x1b[2J\r\n 10 %\r100 %\n\xff\x1b[3"
    assert clean_lines(data, colour=True) == [
        "\x1b[31mred\x1b[0m",
        "plain\\x1b[2J",
        " 10 %",
        "100 %",
        "\ufffd\\x1b[3",
    ]
    assert clean_lines(data, colour=False)[0] == "red"
    assert clean_lines(b"\n", colour=False) == [""]


async def test_an_echo_prints_whole_lines_of_one_graph() -> None:
    err, kept = Pipe(), []
    echo = Echo(Stream(err, {}), "g", ["one", "three"])

    async def keep(data: bytes) -> None:
        await asyncio.sleep(0)
        kept.append(data)

    works = [Work(graph, label, 0, label, "claim", {}) for graph, label in (("g", "one"), ("g", "three"), ("h", "x"))]
    one, three, other = (echo.around(work, keep) for work in works)
    assert other is keep
    await one(b"begun ")
    await three(b"a\nb\nc")
    await one(b"and done\n")
    assert err.getvalue() == "three │ a\nthree │ b\none   │ begun and done\n"
    assert kept == [b"begun ", b"a\nb\nc", b"and done\n"]
    for work in works:
        echo.end(work)
        echo.end(work)
    assert err.getvalue().splitlines()[3:] == ["three │ c"]
    await one(b"x" * 100_000)
    assert err.getvalue().endswith("xxx\n"), "a line without an end is not kept for ever"
