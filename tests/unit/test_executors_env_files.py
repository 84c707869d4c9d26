"""Files of variables that commands are given by `envFile`."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from taskgraph.model.secrecy import Handed
from taskgraph.worker.executors import CommandExecutor, Outcome, Work
from taskgraph.worker.executors.env_files import ENV_FILE_BYTES_MAX, variables

PRINT = "import json, os; print(json.dumps(dict(os.environ)))"


def run(handed: Handed = Handed(), **payload: Any) -> tuple[Outcome, str]:  # noqa: B008 - it cannot be changed
    said = bytearray()

    async def log(data: bytes) -> None:
        said.extend(data)

    definition = {"payload": {"command": [sys.executable, "-c", PRINT], **payload}}
    made = asyncio.run(CommandExecutor(handed=handed).run(Work("g", "t", 0, "a", "c", definition), log))
    return made, said.decode()


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("export A=b", "b"),
        ("  export \t A= b c \t\r", "b c"),
        ("A=", ""),
        ("A= # comment", ""),
        ("A=#b", "#b"),
        ("A=b#c  # comment # more", "b#c"),
        ("A=b=c", "b=c"),
        ("A=$HOME\\n${B}`c`", "$HOME\\n${B}`c`"),
        ('A=it\'s "so"', 'it\'s "so"'),
        ("A='b # \\n \"c\" '", 'b # \\n "c" '),
        ("A='' # comment", ""),
        ('A="b # \\"c\\" \\\\n \\n \\t $D"  # "comment"', 'b # "c" \\n \n \\t $D'),
        ("A=b\nA=c", "c"),
        ("# B=c\n\n \t\nA=ü", "ü"),
    ],
)
def test_a_line_has_a_name_and_a_value(line: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(line.encode())
    assert variables(tmp_path / "e") == {"A": value}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"planted", "is no NAME=value"),
        (b"export planted", "is no NAME=value"),
        (b"A =planted", "is no NAME=value"),
        (b"1A=planted", "is no NAME=value"),
        ("Ä=planted".encode(), "is no NAME=value"),
        (b"=planted", "is no NAME=value"),
        (b"A='planted", "has a quote that does not end, or something behind the one that does"),
        (b'A="planted\\"', "has a quote that does not end, or something behind the one that does"),
        (b"A='planted'x", "has a quote that does not end, or something behind the one that does"),
        (b"A='planted'#x", "has a quote that does not end, or something behind the one that does"),
        (b"A=planted\xff", "is not UTF-8"),
        (b"A=planted\0", "holds the character NUL, which no variable can"),
    ],
)
def test_a_wrong_line_is_an_exception_with_its_place_and_not_its_text(line: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(b"# first\nOK=1\n" + line + b"\nB=1\n")
    made, said = run(cwd=str(tmp_path), envFile="e")
    assert (made.exception, made.reason) == (True, f"payload.envFile: line 3 of {tmp_path}/e {why}")
    assert said == ""


def test_a_file_that_cannot_be_read_is_an_exception(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"#" * ENV_FILE_BYTES_MAX + b"\n")
    reasons = {name: run(cwd=str(tmp_path), envFile=name)[0] for name in ("none", "fifo", ".", "large")}
    assert all(made.exception for made in reasons.values())
    assert reasons["none"].reason == f"payload.envFile: the file {tmp_path}/none does not exist"
    assert reasons["fifo"].reason == f"payload.envFile: {tmp_path}/fifo is no regular file"
    assert reasons["."].reason == f"payload.envFile: the file {tmp_path} cannot be read: Is a directory"
    assert reasons["large"].reason == f"payload.envFile: the file {tmp_path}/large has more than 262,144 bytes"
    (tmp_path / "large").write_bytes(b"#" * ENV_FILE_BYTES_MAX)
    assert variables(tmp_path / "large") == {}
    assert run(envFile="")[0].reason == "payload.envFile must be a text that is not empty"
    assert run(envFile=1)[0].exception


def test_env_wins_over_the_file_and_the_file_over_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "worker")
    (tmp_path / "e").write_text("INHERITED=file\nBOTH=file\nALONE=file\nTOKEN=file\nTASKGRAPH_LABEL=file\n")
    handed = Handed(secrets={"TASKGRAPH_SECRET_A": "planted"})
    env = {"BOTH": "env", "TOKEN": {"$secret": "a"}}
    made, said = run(handed, envFile=str(tmp_path / "e"), env=env, inheritEnv=["INHERITED"])
    assert not made.failed
    found = json.loads(said)
    assert [found[name] for name in ("INHERITED", "BOTH", "ALONE", "TOKEN", "TASKGRAPH_LABEL")] == [
        "file",
        "env",
        "file",
        "***",
        "a",
    ]


def test_the_file_is_read_from_the_folder_of_the_command_before_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "e").write_text("A=worker")
    for value in ("first", "second"):
        (tmp_path / "site" / "e").write_text(f"A={value}")
        assert json.loads(run(cwd="site", envFile="e")[1])["A"] == value
    assert json.loads(run(envFile="e")[1])["A"] == "worker"
    assert run(cwd="site", envFile="none")[0].reason == "payload.envFile: the file site/none does not exist"
