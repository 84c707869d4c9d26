"""What hatch asks before it builds: the page is put into the package, so that who installs it needs no Node.js."""

import os
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC: Final = "taskgraph/interfaces/web/static"
WITHOUT: Final = "TASKGRAPH_WITHOUT_PAGE"


class PageHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises RuntimeError where the page was not built. An editable installation looks for it while it serves."""
        if version == "editable" or os.environ.get(WITHOUT):
            return
        if not Path(self.root, STATIC, "index.html").exists():
            raise RuntimeError(
                f"the page is not built: run scripts/web first (it needs Node.js), or set {WITHOUT}=1 for a package "
                "whose `serve --http` answers with the API alone"
            )
        build_data["artifacts"].append(f"/{STATIC}")
