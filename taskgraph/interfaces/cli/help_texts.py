"""What writes the help, imported without the half of it that no text of ours needs.

typer imports all that rich has for Markdown and tracebacks: a parser of Markdown, a highlighter of source, attrs. Our
help is in rich's own markup, and errors are printed by `common`.
"""

import contextlib
import sys
from types import ModuleType
from typing import Final

_UNUSED: Final = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


def import_help() -> None:
    """For a process of the command line alone: a program around it might want Markdown of typer."""
    placeholders = {}
    for module, name in _UNUSED.items():
        if module not in sys.modules:
            placeholders[module] = sys.modules[module] = ModuleType(module)
            setattr(placeholders[module], name, type(name, (), {}))
    try:
        with contextlib.suppress(ImportError):  # another release wants more of them: typer imports it as ever
            import typer.rich_utils  # noqa: F401
    finally:
        for module in placeholders:
            del sys.modules[module]
