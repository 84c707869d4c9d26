"""Table explorers that are not ours: `az`, and Microsoft's Node client, each as a process of its own."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
AZ: Final = ROOT / ".venv-az" / "bin" / "az"
_CLIENT: Final = Path(__file__).with_name("client.js")
_SECONDS: Final = 120


def missing() -> str:
    """What is not installed, "" if all of it is."""
    if not AZ.exists():
        return "azure-cli is not installed in .venv-az: scripts/test does"
    if not (ROOT / "node_modules" / "@azure" / "data-tables").exists():
        return "@azure/data-tables is not installed: npm ci"
    return ""


def need_clients() -> None:
    """Fail, or skip where nobody insists, if a client is not installed."""
    if text := missing():
        if os.environ.get("CI") or os.environ.get("TASKGRAPH_TEST_REQUIRE_AZURITE"):
            pytest.fail(text)
        pytest.skip(text)


def az(words: Sequence[str], folder: Path, connection: str = "") -> "subprocess.CompletedProcess[str]":
    """Run `az` with these words. folder: where it keeps its settings; nobody is logged in there."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AZURE_", "TASKGRAPH_"))
    }
    own = {"AZURE_CONFIG_DIR": str(folder), "AZURE_CORE_COLLECT_TELEMETRY": "no", "AZURE_CORE_NO_COLOR": "yes"}
    if connection:
        own["AZURE_STORAGE_CONNECTION_STRING"] = connection
    return subprocess.run(
        [str(AZ), *words], env={**kept, **own}, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


class Node:
    """The Node client, as one process that answers line by line. To be closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(_CLIENT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """{"rows": […]}, or {"refused": status, "message": …}."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests
        assert answers
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        answer: dict[str, Any] = json.loads(answers.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        assert self._process.wait(30) == 0
        self._process.stdout.close()
