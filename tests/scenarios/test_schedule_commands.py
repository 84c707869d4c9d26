"""`taskgraph schedule …` as it is typed: words, JSON and exit codes, over the embedded store."""

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from taskgraph import Client
from taskgraph.interfaces.cli import app as commands
from tests.http.typed import both_doors

pytestmark = both_doors


def test_words_and_exit_codes(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    file = str(tmp_path / "graph.json")
    Path(file).write_text(json.dumps({"tasks": {"a": {"task": {}}}}))

    def run(*words: str) -> Any:
        return CliRunner().invoke(commands, ["schedule", *words, "--store", store])

    assert "there are no schedules" in run("list").stderr
    nightly = ("create", "nightly", file, "--cron", "30 2 * * *", "--timezone", "Europe/Berlin")
    made = run(*nightly)
    assert (made.exit_code, made.stdout) == (0, "nightly\n")
    assert "it fires next at" in made.stderr
    assert "existing" in run(*nightly).stderr
    refused = run(*nightly[:-1], "UTC")
    assert refused.exit_code == 4
    assert "taskgraph schedule update nightly" in refused.stderr
    for words, says in (
        (("create", "a", file), "say when"),
        (("create", "a", file, "--cron", "* * * *"), "five fields"),
        (("create", "a", file, "--every", "5x"), "30s, 5m, 12h, 7d"),
        (("create", "a", file, "--every", "5m", "--timezone", "UTC"), "a time zone goes with cron"),
        (("create", "a", file, "--at", "2030-01-01T00:00"), "has no time zone"),
        (("create", "a", file, "--at", "yesterday"), "write a time such as"),
        (("create", "a", file, "--at", "2020-01-01T00:00Z"), "has passed"),
        (("create", "a", file, "--every", "5m", "--catch-up", "some"), "catch-up “some”: one of none, last, all"),
        (("create", "a", file, "--every", "5m", "--overlap", "maybe"), "overlap “maybe”: one of skip, queue"),
        (("create", "a", file, "--cron", "0 2 * * *", "--timezone", "Europe/Berln"), "did you mean Europe/Berlin"),
        (("create", "a/b", file, "--every", "5m"), "cannot be the name"),
        (("update", "nightly", "--param", "a=1"), "--param goes with a FILE"),
        (("update", "nightly", "--anchor", "2030-01-01T00:00Z"), "an anchor goes with every"),
        (("update", "nightly", "--cron", "0 2 * * *", "--every", "5m"), "only one of"),
    ):
        done = run(*words)
        assert done.exit_code == 2, words
        assert says in done.stderr, words
    missing = run("show", "nigthly")
    assert missing.exit_code == 3
    assert "did you mean" in missing.stderr
    assert "nightly" in run("list").stdout
    shown = run("show", "nightly").stdout
    assert "30 2 * * * (Europe/Berlin)" in shown
    by_hand = run("run-now", "nightly")
    assert by_hand.stdout.startswith("nightly-")
    assert by_hand.stdout.strip().endswith("-now")
    assert by_hand.stdout.strip() in run("show", "nightly").stdout
    assert "0 4 * * * (Europe/Berlin)" in run("update", "nightly", "--cron", "0 4 * * *").stderr
    assert run("deactivate", "nightly").exit_code == 0
    assert "inactive" in run("list").stdout
    assert run("activate", "nightly").exit_code == 0
    assert run("delete", "nightly").exit_code == 0
    assert run("delete", "nightly").exit_code == 3


def test_who_looks_at_the_clock_is_said_where_no_handler_is_seen(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    (tmp_path / "graph.json").write_text(json.dumps({"tasks": {"a": {"task": {}}}}))

    def created(name: str) -> str:
        words = ["schedule", "create", name, str(tmp_path / "graph.json"), "--every", "1h", "--store", store]
        return CliRunner().invoke(commands, words).stderr

    async def register() -> None:
        async with Client(store) as client:
            await client.app.handler_registration("h").beat()

    assert "a process must look at the clock: taskgraph serve" in created("before")
    asyncio.run(register())
    after = created("after")
    assert "it fires next at" in after
    assert "clock" not in after
