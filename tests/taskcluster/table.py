"""The table of the page docs/how-to/taskcluster.md: each method, called by the old client, and what it gets."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "taskcluster.md"

_ID: Final = re.compile(r"[\w-]{22}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:\+00:00)?Z?")


def rendered(calls: Iterable[Mapping[str, Any]]) -> str:
    """The first call of each method, and the first of each that was refused, with ids by name and times left out."""
    names: dict[str, str] = {}
    shown: dict[tuple[str, str, int], str] = {}
    for each in calls:
        _name_ids(each, names)
        key = (each["class"], each["method"], each.get("status", 200))
        if key in shown:
            continue
        arguments = ", ".join(_short(one) for one in each["arguments"])
        answer = (
            json.dumps(each["answer"], ensure_ascii=False)
            if "answer" in each
            else f"{each['status']} {json.dumps(each['error'], ensure_ascii=False)}"
        )
        line = f"| `{each['class']}.{each['method']}({arguments})` | `{_plain(answer)}` |"
        for task_id, name in names.items():
            line = line.replace(task_id, name)
        shown[key] = line
    return "\n".join(["| call | answer |", "|---|---|", *shown.values()])


def _name_ids(call: Mapping[str, Any], names: dict[str, str]) -> None:
    for one in call["arguments"]:
        if isinstance(one, str) and _ID.fullmatch(one):
            names.setdefault(one, "GRAPH" if not names else "OTHER")
        if isinstance(one, dict):
            for node in one.get("tasks", ()):
                names.setdefault(node["taskId"], "ABCDEF"[sum(len(name) == 1 for name in names.values())])


def _short(argument: Any) -> str:
    """An argument without definitions of tasks, which are all alike."""
    if isinstance(argument, str):
        return json.dumps(argument)
    text = json.dumps(argument, default=lambda value: "…")
    return re.sub(r'"(task|metadata)": \{(?:[^{}]|\{[^{}]*\})*\}', r'"\1": {…}', text)


def _plain(text: str) -> str:
    text = re.sub(r'("uptime": )[\d.]+', r"\g<1>…", _TIME.sub("…", text))
    return re.sub(r'"metadata": \{[^{}]*\}', '"metadata": {…}', text)
