"""The command line over servers: what tests type over a store goes over one in front of it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from tests.e2e import processes
from tests.http.serving import apart, serving

DIRECT: Final = {
    "run": "running tasks",
    "worker": "running tasks",
    "serve": "handling events",
    "ui": "showing a store",
    "doctor --repair": "mending a store",
    "transfer": "moving a graph",
    "token create": "making a token",
    "token list": "listing tokens",
    "token revoke": "revoking a token",
    "web deploy": "deploying the page",
}
"""Commands that take the store itself, and what they say cannot be done over HTTP."""

DOORS: Final = ["embedded", pytest.param("http", marks=pytest.mark.campaign)]
both_doors: Final = pytest.mark.parametrize("door", DOORS, indirect=True)
"""Marks tests that type commands: they go over a store, and in campaigns over a server in front of it too."""

_SQLITE: Final = "sqlite:///"


@contextmanager
def answering(store: str) -> Iterator[str]:
    """The address of a server in a thread of its own. It answers, and handles nothing."""
    with apart(serving(store, Path.cwd(), slots=0, handles=False)) as server:
        yield f"{server.address}/api"


@contextmanager
def typed_over_http() -> Iterator[None]:
    """Have commands go over a server, but for those that take the store itself."""
    addresses: dict[str, str] = {}
    invoke = CliRunner.invoke

    def over_http(runner: CliRunner, commands: Any, words: Sequence[str], **more: Any) -> Any:
        return invoke(runner, commands, [swapped(words, each) for each in words], **more)

    def swapped(words: Sequence[str], word: str) -> str:
        if not word.startswith(_SQLITE) or {words[0], " ".join(words[:2])} & DIRECT.keys():
            return word
        if word not in addresses:
            addresses[word] = servers.enter_context(answering(word))
        return addresses[word]

    with ExitStack() as servers, pytest.MonkeyPatch.context() as patch:
        patch.setattr(CliRunner, "invoke", over_http)
        patch.setattr(processes, "doors", [swapped])
        yield


@pytest.fixture(autouse=True)
def door(request: pytest.FixtureRequest) -> Iterator[str]:
    """What commands that are typed in a test go over: their store, or a server in front of it (see `both_doors`)."""
    kind = getattr(request, "param", "embedded")
    with typed_over_http() if kind == "http" else nullcontext():
        yield kind
