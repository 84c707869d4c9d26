"""What a shell is offered after TAB."""

import socket
import time
from pathlib import Path

import pytest

from tests.e2e.processes import taskgraph, write_graph


@pytest.fixture
def store(tmp_path: Path) -> str:
    store = f"sqlite:///{tmp_path}/store.db"
    file = str(
        write_graph(tmp_path / "g.json", {"test/unit": {"task": {}}, "test slow": {"task": {}}, "x": {"task": {}}})
    )
    for words in (
        ("submit", file, "--id", "nightly-1"),
        ("submit", file, "--id", "other"),
        ("schedule", "create", "nightly", file, "--cron", "@daily"),
        ("limit", "set", "--target", "gpu", "2"),
    ):
        assert taskgraph(*words, store=store, cwd=tmp_path).returncode == 0, words
    return store


def offered(words: str, store: str, cwd: Path) -> list[str]:
    """What bash is offered for the last word."""
    asked = {"_TASKGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    done = taskgraph(store=store, cwd=cwd, **asked)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return sorted(done.stdout.split())


def test_what_is_in_the_store_is_offered(store: str, tmp_path: Path) -> None:
    assert offered("taskgraph status n", store, tmp_path) == ["nightly-1"]
    assert offered("taskgraph run --id ", store, tmp_path) == ["nightly-1", "other"]
    assert offered("taskgraph why nightly-1 t", store, tmp_path) == ["test/unit"], "and nothing that must be quoted"
    assert offered("taskgraph why nigh t", store, tmp_path) == ["test/unit"], "of the one graph that begins so"
    assert offered("taskgraph logs @last x t", store, tmp_path) == ["test/unit"], "behind another label, too"
    assert offered("taskgraph pause --target ", store, tmp_path) == ["default", "gpu"]
    assert offered("taskgraph schedule show ", store, tmp_path) == ["nightly"]


def test_states_are_offered_without_a_store(tmp_path: Path) -> None:
    assert offered("taskgraph list --state pa", "nonsense", tmp_path) == ["paused"]
    assert offered("taskgraph delete --older-than 3 --state c", "nonsense", tmp_path) == ["cancelled"]
    assert offered("taskgraph show g --state un", "nonsense", tmp_path) == ["unscheduled"]


def test_a_store_that_is_not_there_or_is_none_offers_nothing(tmp_path: Path) -> None:
    assert offered("taskgraph status n", f"sqlite:///{tmp_path}/none.db", tmp_path) == []
    assert offered("taskgraph status n", "nonsense", tmp_path) == []
    assert not (tmp_path / "none.db").exists()


def test_a_store_that_does_not_answer_holds_no_shell(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        end = f"http://127.0.0.1:{silent.getsockname()[1]}/account"
        ends = ";".join(f"{kind}Endpoint={end}" for kind in ("Table", "Queue", "Blob"))
        began = time.monotonic()
        assert offered("taskgraph status n", f"AccountName=account;AccountKey={'c2VjcmV0' * 8};{ends}", tmp_path) == []
    assert time.monotonic() - began < 8  # two seconds, and the start of a process on a busy machine
