"""Graphs that the page is shown: one of every state, and one whose every text is hostile."""

from typing import Any, Final

EMOJI: Final = "\U0001f600" * 255
TURNING: Final = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
SCRIPT: Final = "<script>window.pwned = 1</script>"
IMAGE: Final = '<img src=x onerror="window.pwned = 1">'
DRAWING: Final = "</style><svg onload=window.pwned=1><a xlink:href=javascript:window.pwned=1>"
BIDI: Final = "\u202eexe.gpj\u202c \u2066isolated"
LINK: Final = "javascript:window.pwned=1"
WIDE: Final = "x" * 255

HOSTILE_LABELS: Final = (SCRIPT, IMAGE, DRAWING, BIDI, EMOJI, LINK, WIDE, "../../etc/passwd", "a?b#c&d=%2e%2e")
HOSTILE_GROUPS: Final = (f"of {BIDI}", f"of {SCRIPT}", f"of {EMOJI}"[:255], "y" * 255)
HOSTILE_RESULT: Final = {SCRIPT: IMAGE, BIDI: EMOJI, "nested": [[{LINK: [WIDE * 4, None, BIDI]}]], "wide": "z" * 5_000}
HOSTILE_REASON: Final = f"{BIDI} {SCRIPT} {EMOJI} {WIDE}"

_GARBAGE: Final = (
    r"\033[31;1;9999;m\033[999999999C\033[38;2;999;-1;zmcolour\033]0;title\007\033Pq#0~~\033\\\033[?25l\033[2J\033[",
    r"\n10 %%\r 20 %%\r100 %%\r\n\rlast\r\r\n\000nul\000 \377\376\300\200 \355\240\200 \342\200\256turned\n\033]8;;",
    rf"{LINK}\007linked\033]8;;\007\n\033",
)


def _task(*command: str, requires: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {"requires": list(requires), "task": {"payload": {"command": list(command)}}, **more}


def _far() -> dict[str, Any]:
    return {"task": {"target": "far", "payload": {"env": {"NAME": HOSTILE_REASON}, "command": [SCRIPT, BIDI, WIDE]}}}


def _printing(text: str) -> tuple[str, ...]:
    return ("printf", "%s\n", text)


MIXED: Final = {
    "metadata": {"name": "one of every state"},
    "tags": {"team": "builds"},
    "tasks": {
        "fetch": _task("true"),
        "build": _task("sh", "-c", "printf 'one\\n\\033[31mred\\033[0m\\n'", requires=("fetch",)),
        "test": _task("sh", "-c", "echo broken >&2; exit 3", requires=("build",)),
        "publish": _task("true", requires=("test",)),
        "note": _task("true", requires=("build",)),
    },
}

HOSTILE: Final = {
    "metadata": {"name": SCRIPT + BIDI, "description": IMAGE + EMOJI, "owner": BIDI, "source": LINK},
    "tags": {SCRIPT: IMAGE, BIDI: EMOJI, WIDE: WIDE},
    "params": {"name": {"default": [SCRIPT, BIDI, {EMOJI: WIDE}], "description": IMAGE}},
    "groups": {
        HOSTILE_GROUPS[0]: {"tasks": [SCRIPT, BIDI, "fails"], "maxInFlight": 5},
        HOSTILE_GROUPS[1]: {"tasks": [IMAGE, BIDI]},
        HOSTILE_GROUPS[2]: {"tasks": [EMOJI]},
        HOSTILE_GROUPS[3]: {"tasks": [WIDE]},
    },
    "tasks": {
        **{label: _task(*_printing(f"{label}\x1b]8;;{LINK}\x07link\x1b]8;;\x07")) for label in HOSTILE_LABELS},
        "long lines": _task("sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo"),
        "garbage": _task("printf", "".join(_GARBAGE)),
        "fails": _task("sh", "-c", f"echo '{SCRIPT}' >&2; exit 1", requires=HOSTILE_LABELS),
        "answered": _far(),
        "refused": _far(),
    },
}

DOCUMENTS: Final = {"mixed": MIXED, "hostile": HOSTILE}
SCHEDULES: Final[dict[str, Any]] = {"yearly": {"cron": "0 3 1 1 *", "document": MIXED}}
ANSWERS: Final[dict[str, tuple[str, Any]]] = {
    "answered": ("complete", {"result": HOSTILE_RESULT}),
    "refused": ("fail", {"reason": HOSTILE_REASON, "end": "exception"}),
}
"""What a worker from elsewhere says of the tasks of the target `far`."""
CHANGES: Final = {
    "hostile": ({"change": "pause", "group": HOSTILE_GROUPS[1], "reason": HOSTILE_REASON},),
}
"""Made when nothing of the graph moves any more."""
