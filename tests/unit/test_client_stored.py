"""What a client gives of a stored graph: files, the timeline, the document, and the same graph once more."""

from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph import NotFound
from tests.http.behind import store_of
from tests.unit.conftest import Opened

GRAPH: Final[dict[str, Any]] = {
    "params": {"word": {"default": "hello"}},
    "tasks": {
        "make": {"command": ["sh", "-c", 'echo "$0" > out.txt', {"$param": "word"}], "outputs": ["out.txt"]},
        "held": {"requires": ["make"], "task": {"executor": "noop"}},
    },
}


async def test_python_has_what_the_command_line_has(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(None) as client:
        assert (await client.run(GRAPH, "first", timeout_seconds=60)).state == "finished"
        (one,) = await client.files("first", "make")
        assert (one.label, one.file.path, one.file.size) == ("make", "out.txt", 6)
        assert await client.files("fir", to=tmp_path / "dist") == [one]
        assert (tmp_path / "dist" / "out.txt").read_text() == "hello\n"
        with pytest.raises(NotFound, match="has left no files"):
            await client.files("first", "held")

        line = await client.timeline("@last")
        assert [each.label for each in line.runs] == [each.label for each in line.path] == ["make", "held"]

        stored = await client.document("first")
        assert stored.same
        again = await client.resubmit("first", "second", params={"word": "bye"}, priority="high")
        assert (again.graph_id, str(again.outcome)) == ("second", "created")
        second = await client.document("second")
        assert (second.document.values, second.to_dict()["priority"]) == ({"word": "bye"}, "high")
        assert second.to_dict()["tasks"] == stored.to_dict()["tasks"]
        assert (await client.submit(stored.to_dict(), "first")).outcome == "existing"
        with pytest.raises(NotFound):
            await client.document("none")


async def test_tasks_are_held_back_by_name(opened: Opened) -> None:
    async with opened(None) as client:
        await client.submit(GRAPH, "g")
        with pytest.raises(NotFound):
            await client.pause("g", "none")
        await client.pause("g", "held", "make")
        await client.resume("g", "make")
        assert await store_of(client).handlers.dispatcher.events_waiting()
