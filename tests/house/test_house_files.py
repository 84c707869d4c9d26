"""The files of the repository: strict scripts, links that lead somewhere, and no names of foreign places."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
UNTRACKED: Final = frozenset(
    {".git", ".venv", "node_modules", ".taskgraph", "__pycache__", "dist", "build", ".hypothesis"}
    | {
        ".venv-az",
        ".venv-helm",
        ".venv-functions",
        ".venv-taskcluster",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".import_linter_cache",
    }
)


def repository_files() -> list[Path]:
    """What git keeps, or is about to; without git (an unpacked archive), all that is no known by-product."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        found = [path for path in ROOT.rglob("*") if not UNTRACKED.intersection(path.relative_to(ROOT).parts)]
    else:
        found = [ROOT / os.fsdecode(name) for name in listing.split(b"\0") if name]
    return sorted(path for path in found if path.is_file())


FILES: Final = repository_files()
SCRIPTS: Final = [
    path for path in FILES if path.parent in {ROOT / "scripts", ROOT / ".ci"} and path.suffix not in {".md", ".sh"}
]
PAGES: Final = [path for path in FILES if path.suffix == ".md"]

# Spelled in parts, as this file is one of those that are searched.
REGISTRIES: Final = re.compile(
    r"|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("registry", "npmjs"),
            ("npmjs", "com"),
            ("yarnpkg", "com"),
        )
    )
)
MACHINE_PATHS: Final = re.compile(r"(?<![\w.~-])/(?:" + "|".join(["wor" + "k", "roo" + "t"]) + r")(?![\w-])")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_is_something_to_look_at() -> None:
    assert {"pyproject.toml", "README.md", "scripts/test", ".ci/run"} <= {named(path) for path in FILES}
    assert {"scripts/taskgraph", "scripts/test", "scripts/check", "scripts/format"} <= {named(path) for path in SCRIPTS}


@pytest.mark.parametrize("pattern", [REGISTRIES, MACHINE_PATHS], ids=["package registries", "paths of one machine"])
def test_no_file_names(pattern: "re.Pattern[str]") -> None:
    """Where packages come from is the user's setting, and where this was written is nobody's business."""
    found = []
    for path in FILES:
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{named(path)}:{number}: {line.strip()[:100]}")
    assert found == []


def test_the_patterns_find_what_they_should() -> None:
    assert REGISTRIES.search("https://" + "pypi" + ".org/simple")
    assert MACHINE_PATHS.search("cd /" + "work/main")
    assert MACHINE_PATHS.search('"/' + 'root"')
    assert not MACHINE_PATHS.search("taskgraph/work/queue .ci/root /working /wor" + "k-items")


def locked(path: str) -> dict[str, dict[str, Any]]:
    """The packages of a lock file, by their place below node_modules."""
    lock = json.loads((ROOT / path).read_text("utf-8"))
    assert lock["lockfileVersion"] >= 3
    return {name.removeprefix("node_modules/"): each for name, each in lock["packages"].items() if name}


@pytest.mark.parametrize("path", ["package-lock.json", "web/package-lock.json"])
def test_the_lock_leaves_open_where_packages_come_from(path: str) -> None:
    packages = locked(path)
    assert [name for name, package in packages.items() if "://" in package.get("resolved", "")] == []
    assert [name for name, package in packages.items() if "integrity" not in package] == []


def test_the_emulator_is_the_one_that_pages_speak_of() -> None:
    assert locked("package-lock.json")["azurite"]["version"] == "3.37.0"


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_a_script_can_be_run_and_stops_at_the_first_error(path: Path) -> None:
    assert os.access(path, os.X_OK), "not executable"
    lines = path.read_text("utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_every_script_has_its_line_in_the_table() -> None:
    table = (ROOT / "scripts" / "README.md").read_text("utf-8")
    for path in SCRIPTS:
        assert f"`{named(path)}" in table, f"scripts/README.md does not name {named(path)}"


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """A page's links to files of this repository: the file, and the heading behind `#`; code left out."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            name, _, heading = target.partition("#")
            yield (page.parent / name if name else page), heading


def headings(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    assert [
        f"{target}#{heading}"
        for target, heading in links(page)
        if not target.exists() or (heading and target.suffix == ".md" and heading not in headings(target))
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_scripts_that_a_page_names_exist(page: Path) -> None:
    mentioned = set(re.findall(r"(?<![\w/.-])scripts/[a-z][a-z0-9-]*", page.read_text("utf-8")))
    assert sorted(name for name in mentioned if not (ROOT / name).exists()) == []
