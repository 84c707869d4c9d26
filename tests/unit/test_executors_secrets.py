"""Secrets that commands ask for by name: where they are found, and what of them is masked."""

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.model.secrecy import Handed, read_handed
from taskgraph.worker.executors import CommandExecutor, Outcome, Work
from taskgraph.worker.executors.secrets import Masked, Secrets

RESULT = 'import os; open(os.environ["TASKGRAPH_RESULT_FILE"], "w").write('


def run(handed: Handed, code: str, **payload: Any) -> tuple[Outcome, str]:
    said = bytearray()

    async def log(data: bytes) -> None:
        said.extend(data)

    definition = {"payload": {"command": [sys.executable, "-c", code], **payload}}
    made = asyncio.run(CommandExecutor(handed=handed).run(Work("g", "t", 0, "a", "c", definition), log))
    return made, said.decode()


def masked(chunks: Sequence[bytes], *secrets: bytes) -> bytes:
    said = bytearray()

    async def log(data: bytes) -> None:
        said.extend(data)

    async def write() -> None:
        mask = Masked(log, secrets)
        for chunk in chunks:
            await mask.write(chunk)
        await mask.close()

    asyncio.run(write())
    return bytes(said)


def test_a_command_gets_a_secret_and_its_log_and_result_do_not() -> None:
    planted = {"TASKGRAPH_SECRET_DEPLOY_TOKEN": 'pa"ss word', "TASKGRAPH_SECRET_OTHER": "other one"}
    handed = read_handed(planted, shared=False)
    code = 'import os, json; t = os.environ["T"]; print(len(t), t, json.dumps(t)); ' + RESULT + "json.dumps({t: [t]}))"
    made, said = run(handed, code, env={"T": {"$secret": "deploy-token"}, "PLAIN": "x"})
    assert not made.failed
    assert said == '10 *** "***"\n'
    assert made.result is not None
    assert json.loads(made.result) == {"***": ["***"]}
    assert "pa" not in repr(handed)


def test_a_secret_is_masked_where_a_run_fails_in_the_middle_of_it() -> None:
    handed = read_handed({"TASKGRAPH_SECRET_A": "planted-secret"}, shared=False)
    code = 'import os; print("so: " + os.environ["T"][:-1], end="", flush=True); os._exit(3)'
    made, said = run(handed, code, env={"T": {"$secret": "a"}})
    assert (made.reason, said) == ("exit code 3", "so: ***")


def test_a_missing_secret_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    made, said = run(Handed(), "print(1)", env={"T": {"$secret": "db-password"}})
    assert made.exception
    assert made.reason == (
        "this worker has no secret “db-password”: set TASKGRAPH_SECRET_DB_PASSWORD at its start, "
        "or name a folder or a vault in TASKGRAPH_SECRETS"
    )
    assert said == ""
    made, _ = run(Handed(place=str(tmp_path)), "print(1)", env={"T": {"$secret": "db-password"}})
    assert made.reason.endswith(f"or write it to {tmp_path}/db-password")


def test_a_file_holds_a_secret_that_others_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a file\n")
    file.chmod(0o600)
    secrets = Secrets(Handed(place=str(tmp_path)))
    assert asyncio.run(secrets.find("token")) == b"from a file"
    file.chmod(0o604)
    with pytest.raises(InvalidInput, match=f"open to other users: chmod 600 {file}"):
        asyncio.run(secrets.find("token"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidInput, match=r"no regular file|Is a directory"):
        asyncio.run(secrets.find("folder"))
    with pytest.raises(InvalidSettings, match="is no folder"):
        Secrets(Handed(place=str(file)))


@pytest.mark.parametrize("value", ["abc", "x" * 8193])
def test_what_cannot_be_masked_is_not_handed_out(value: str) -> None:
    with pytest.raises(InvalidInput, match="can be masked"):
        asyncio.run(Secrets(Handed(secrets={"TASKGRAPH_SECRET_A": value})).find("a"))


@pytest.mark.parametrize(
    ("text", "secrets", "left"),
    [
        (b"one secret here, and secret", (b"secret",), b"one *** here, and ***"),
        (b"sesesecret secre", (b"secret",), b"sese*** ***"),
        (b"abcd abcdef abcde", (b"abcd", b"abcdef"), b"*** *** ***"),
        (b"aXbaXba", (b"aXba",), b"***Xba"),
        (b"a se", (b"secret",), b"a se"),
        (b"first\r\nsecond", (b"first\nsecond",), b"***"),
    ],
)
def test_a_secret_is_masked_however_it_is_cut(text: bytes, secrets: tuple[bytes, ...], left: bytes) -> None:
    for at in range(len(text) + 1):
        for end in range(at, len(text) + 1):
            assert masked([text[:at], text[at:end], text[end:]], *secrets) == left, (at, end)
    assert masked([bytes((each,)) for each in text], *secrets) == left


def test_a_number_of_a_result_is_masked_and_a_result_without_secrets_stays_as_it_is() -> None:
    async def log(data: bytes) -> None:
        raise AssertionError(data)

    mask = Masked(log, [b"123456"])
    assert mask.result(b'{"n": 9123456, "ok": true}') == b'{"n": "***", "ok": true}'
    assert mask.result(b'{ "n":1e3}') == b'{ "n":1e3}'
    assert mask.result(None) is None


def test_a_command_inherits_what_its_task_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "x")
    monkeypatch.setenv("OTHER", "x")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "x")
    code = "import os; print(*sorted(os.environ))"

    def names(**payload: Any) -> set[str]:
        return {name for name in run(Handed(), code, **payload)[1].split() if not name.startswith("TASKGRAPH_")}

    assert {"MINE", "OTHER", "PATH"} <= names()
    alone = names(inheritEnv=False, env={"ADDED": "x"})
    assert {"ADDED", "PATH"} <= alone
    assert not {"MINE", "OTHER", "AZURE_CLIENT_SECRET"} & alone
    assert names(inheritEnv=["MINE", "AZURE_CLIENT_SECRET"]) == (alone | {"MINE"}) - {"ADDED"}
    assert re.search("inheritEnv must be", run(Handed(), code, inheritEnv="yes")[0].reason)
