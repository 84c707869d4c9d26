"""What hatch asks before it builds: the page is put into the package, so that who installs it needs no Node.js.

And the program that starts commands is compiled, where there is a C compiler. Without one, a script does the same, at
twice the CPU.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC: Final = "taskgraph/interfaces/web/static"
WITHOUT: Final = "TASKGRAPH_WITHOUT_PAGE"
STARTER: Final = "taskgraph/worker/executors/starter.c"
PURE: Final = "TASKGRAPH_PURE"
"""Set for a wheel that is the same on all systems."""
FLAGS: Final = ("-std=c11", "-O2", "-Wall", "-Wextra")


class Hook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises RuntimeError where the page was not built. An editable installation looks for it while it serves."""
        if self.target_name == "wheel":
            self._put_starter(build_data)
        if version == "editable" or os.environ.get(WITHOUT):
            return
        if not Path(self.root, STATIC, "index.html").exists():
            raise RuntimeError(
                f"the page is not built: run scripts/web first (it needs Node.js), or set {WITHOUT}=1 for a package "
                "whose `serve --http` answers with the API alone"
            )
        build_data["artifacts"].append(f"/{STATIC}")

    def _put_starter(self, build_data: dict[str, Any]) -> None:
        if os.environ.get(PURE) or sys.platform != "linux":
            return
        program = self._compiled(Path(self.root, STARTER))
        if program is not None:
            build_data["artifacts"].append(f"/{program.relative_to(self.root)}")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compiled(self, source: Path) -> Path | None:
        """The program, by the name that `starting.compiled` looks for; None where it cannot be made, as is said."""
        program = source.with_name(f"starter-{zlib.crc32(source.read_bytes()):08x}")
        unfinished = program.with_name(f".{program.name}.{os.getpid()}")
        command = [*shlex.split(os.environ.get("CC") or "cc"), *FLAGS, "-o", str(unfinished), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            wrong = done.returncode and (done.stderr.strip() or f"{command[0]} gave {done.returncode}")
        except OSError as error:  # there is none
            wrong = str(error)
        if wrong:
            self.app.display_warning(f"commands will be started by a script, as {STARTER} was not compiled: {wrong}")
            return None
        for earlier in source.parent.glob("starter-*"):
            earlier.unlink(missing_ok=True)
        unfinished.replace(program)
        return program
