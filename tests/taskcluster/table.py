"""The tables of the page docs/how-to/taskcluster.md: each method, called by an old client, and what it gets."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from taskgraph.protocol.old_scheduler import SLUGID

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "taskcluster.md"

_ALIKE: Final = {"provisionerId", "workerType", "schedulerId", "deadline", "expires"} | {
    *("scheduled", "started", "resolved", "workerGroup", "workerId")
}
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
            json.dumps(_without_what_is_alike(each["answer"]), ensure_ascii=False)
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
        if isinstance(one, str) and SLUGID.fullmatch(one):
            names.setdefault(one, _letter(names) if call["class"] == "Queue" else "OTHER" if names else "GRAPH")
        if isinstance(one, dict) and isinstance(nodes := one.get("tasks"), list):
            for node in nodes:
                names.setdefault(node["taskId"], _letter(names))
    answer = call.get("answer", {})
    if call["class"] == "scheduler":  # the client of 2014: the ids are the server's
        names.setdefault(answer["status"]["taskGraphId"], "GRAPH")
        for task in answer.get("tasks", {}).values():
            names.setdefault(task["taskId"], _letter(names))


def _letter(names: Mapping[str, str]) -> str:
    return "ABCDEFGH"[sum(len(name) == 1 for name in names.values())]


def _short(argument: Any) -> str:
    """An argument without definitions of tasks, which are all alike."""
    if isinstance(argument, str):
        return json.dumps(argument)
    if isinstance(argument, dict) and "provisionerId" in argument:
        return "{…}"
    return json.dumps(_shortened(argument), ensure_ascii=False).replace('"{…}"', "{…}")


def _shortened(value: Any) -> Any:
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: "{…}" if key in ("task", "metadata") else _shortened(each) for key, each in value.items()}


def _without_what_is_alike(value: Any) -> Any:
    """Without definitions beside statuses, and what statuses of tasks repeat of these."""
    if isinstance(value, list):
        return [_without_what_is_alike(each) for each in value]
    if not isinstance(value, dict):
        return value
    if not value.keys() & {"runs", "reasonCreated"}:
        return {key: "…" if key == "task" else _without_what_is_alike(each) for key, each in value.items()}
    return {key: _without_what_is_alike(each) for key, each in value.items() if key not in _ALIKE}


def _plain(text: str) -> str:
    text = re.sub(r"http://127\.0\.0\.1:\d+", "…", text)
    text = re.sub(r'("uptime": )[\d.]+', r"\g<1>…", _TIME.sub("…", text))
    return re.sub(r'"metadata": \{[^{}]*\}', '"metadata": {…}', text)
