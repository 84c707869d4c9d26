"""Programs over the code of the page (web/test), as Node runs them."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

_WEB: Final = Path(__file__).resolve().parents[2] / "web"
_BUNDLER: Final = _WEB / "node_modules" / ".bin" / "esbuild"
_FOR_NODE: Final = ("--format=esm", "--platform=node")


class Programs:
    """Each is bundled at its first run, into a folder."""

    def __init__(self, folder: Path) -> None:
        if not _BUNDLER.exists() or shutil.which("node") is None:
            pytest.fail("the tools of the page are not installed: scripts/web")
        self._folder = folder

    async def run(self, name: str, **asked: Any) -> bytes:
        """What it prints, called with an object."""
        process = await self.start(name, **asked)
        output, words = await process.communicate()
        assert process.returncode == 0, words.decode()
        return output

    async def start(self, name: str, **asked: Any) -> asyncio.subprocess.Process:
        made = self._folder / f"{name}.mjs"
        if not made.exists():
            command = [
                str(_BUNDLER),
                f"test/{name}.ts",
                "--bundle",
                "--format=esm",
                "--platform=node",
                f"--outfile={made}",
            ]
            subprocess.run(command, cwd=_WEB, check=True, capture_output=True)
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec("node", made, json.dumps(asked), stdout=pipe, stderr=pipe)
