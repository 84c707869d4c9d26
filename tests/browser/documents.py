"""Graphs that the page is shown: one of every state, and one whose every text is hostile."""

from typing import Any, Final

EMOJI: Final = "\U0001f600" * 255
TURNING: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
SCRIPT: Final = "<script>window.pwned = 1</script>"
IMAGE: Final = '<img src=x onerror="window.pwned = 1">'
BIDI: Final = "\u202eexe.gpj\u202c \u2066isolated"
LINK: Final = "javascript:window.pwned=1"

HOSTILE_LABELS: Final = (SCRIPT, IMAGE, BIDI, EMOJI, LINK, "x" * 255, "../../etc/passwd", "a?b#c&d=%2e%2e")


def _task(*command: str, requires: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {"requires": list(requires), "task": {"payload": {"command": list(command)}}, **more}


def _printing(text: str) -> tuple[str, ...]:
    return ("printf", "%s\n", text)


MIXED: Final = {
    "metadata": {"name": "one of every state"},
    "tasks": {
        "fetch": _task("true"),
        "build": _task("sh", "-c", "printf 'one\\n\\033[31mred\\033[0m\\n'", requires=("fetch",)),
        "test": _task("sh", "-c", "echo broken >&2; exit 3", requires=("build",)),
        "publish": _task("true", requires=("test",)),
        "note": _task("true", requires=("build",)),
    },
}

HOSTILE: Final = {
    "metadata": {"name": SCRIPT + BIDI, "description": IMAGE},
    "tasks": {
        **{label: _task(*_printing(f"{label}\x1b]8;;{LINK}\x07link\x1b]8;;\x07")) for label in HOSTILE_LABELS},
        "long lines": _task("sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo"),
        "fails": _task("sh", "-c", f"echo '{SCRIPT}' >&2; exit 1", requires=HOSTILE_LABELS),
    },
}

DOCUMENTS: Final = {"mixed": MIXED, "hostile": HOSTILE}
