"""Pages that are read from the top are followed from the top, and what they show is held against what is printed."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.processes import ROOT, taskgraph
from tests.pages import follow, pieces, unlike

MIGRATIONS: Final = ("make", "airflow", "celery", "durable-functions", "argo")
FOLLOWED: Final = (
    "README.md",
    "docs/tutorial/first-graph.md",
    "docs/how-to/troubleshooting.md",
    "docs/how-to/operating.md",
    "docs/how-to/imports.md",
    *(f"docs/how-to/migrate-{name}.md" for name in MIGRATIONS),
)


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    page = (ROOT / name).read_text("utf-8")
    assert any(piece.commands for piece in pieces(page))
    assert follow(page, tmp_path) == []


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("```text\n$ echo a; echo b\nb\na\n```\n", []),
        ("```text\n$ echo took 3.1 s\ntook 0.002 s\n```\n", []),
        ("```text\n$ echo a b c; echo d\na…c\n…\n```\n", []),
        ("```text\n$ echo a\nb\n```\n", ["$ echo a\n- b", "$ echo a\n+ a"]),
        ("```text\n$ exit 3 # exit code 3\n$ exit 4\n```\n", ["$ exit 4\nexit code 4\n"]),
        ("`a.txt`:\n\n```sh\nhello\n```\n\n```text\n$ cat a.txt\nhello\n```\n", []),
        ("```text\n$ echo one \\\n    two\none two\n```\n", []),
        ("```text\n$ false &\n$ sleep 0.3\n```\n", ["$ false &\nended with exit code 1"]),
    ],
)
def test_what_differs_is_found(page: str, wrong: list[str], tmp_path: Path) -> None:
    assert follow(f"\n{page}", tmp_path) == wrong


def test_a_line_is_used_once() -> None:
    assert unlike(["a", "a", "…"], ["a", "b"]) == ["- a"]


def units() -> dict[str, str]:
    page = (ROOT / "docs" / "how-to" / "operating.md").read_text("utf-8")
    return {piece.name: piece.text for piece in pieces(page) if piece.name.endswith((".service", ".timer"))}


def test_what_the_units_start_has_these_options(tmp_path: Path) -> None:
    started = [re.findall(r"^ExecStart=\S+/taskgraph (\S+) (.*)$", text, re.MULTILINE) for text in units().values()]
    assert len(started) == 2
    for ((command, options),) in started:
        shown = taskgraph(command, "--help", store="", cwd=tmp_path).stdout
        assert [each for each in options.split() if each.startswith("--") and each not in shown] == []


def test_units_of_systemd_are_read_by_systemd(tmp_path: Path) -> None:
    """The program and the user that they name are those of another machine; everything else is judged."""
    if not (analyze := shutil.which("systemd-analyze")):
        pytest.skip("there is no systemd here")
    assert units()
    for name, text in units().items():
        here = re.sub(r"^User=.*\n", "", text.replace("/opt/taskgraph/bin/taskgraph", "/bin/true"), flags=re.MULTILINE)
        (tmp_path / name).write_text(here, "utf-8")
    done = subprocess.run(
        [analyze, "verify", "--man=no", *(str(tmp_path / name) for name in units())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line] == []
