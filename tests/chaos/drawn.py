"""Documents of every kind, extensions and edits, drawn from a seed, for `operations`."""

import random
from datetime import datetime, timedelta
from typing import Any, Final

_LEVELS: Final = ("highest", "high", "normal", "low", "lowest")
_WHEN: Final = ("all-completed", "all-resolved", "any-failed", "always")


def draw_document(rng: random.Random, now: datetime, tasks_max: int = 14, held: bool = True) -> dict[str, Any]:
    """A graph: some wide, with groups, limits, conditions, priorities, retries, deadlines. held: or inactive parts."""
    policy = rng.choice(["block", "block", "continue", "continue", "fail-fast"])
    count = rng.randint(1, tasks_max) if rng.random() < 0.93 else rng.randint(100, 140)
    labels = [f"t{n}" for n in range(count)]
    tasks: dict[str, Any] = {}
    for place, label in enumerate(labels):
        tasks[label] = draw_node(rng, now, labels[:place], policy, held=held)
    if count > 99:  # as wide as a join
        tasks["end"] = {"requires": labels, "task": _work(rng, 0.0)}
    document: dict[str, Any] = {"tasks": tasks, "failurePolicy": policy}
    if rng.random() < 0.5:
        document["groups"] = _groups(rng, labels, held=held)
    if rng.random() < 0.35:
        document["maxInFlight"] = rng.randint(1, 4)
    if rng.random() < 0.25:
        document["priority"] = rng.choice(_LEVELS)
    if rng.random() < 0.08:
        document["deadline"] = _time(now, rng.uniform(2, 9))
    return document


def _groups(rng: random.Random, labels: list[str], *, held: bool, name: str = "g") -> dict[str, Any]:
    """Groups over runs of labels, so that no group requires what it holds up: members later than what they require."""
    groups: dict[str, Any] = {}
    for number in range(rng.randint(1, 3)):
        start = rng.randrange(len(labels))
        members = labels[start : start + rng.randint(1, 5)]
        group: dict[str, Any] = {"tasks": list(members)}
        if start and rng.random() < 0.5:
            group["requires"] = [rng.choice(labels[:start])]
        if held and rng.random() < 0.1:
            group["active"] = False
        if rng.random() < 0.3:
            group["maxInFlight"] = rng.randint(1, 3)
        groups[f"{name}{number}"] = group
    return groups


def draw_node(
    rng: random.Random, now: datetime, before: list[str], policy: str, *, held: bool = True
) -> dict[str, Any]:
    """A task that may require what is before it."""
    near = before[-6:]
    requires: list[Any] = sorted(rng.sample(near, rng.randint(0, min(3, len(near)))))
    node: dict[str, Any] = {"requires": requires, "task": _work(rng, 0.4)}
    definition = node["task"]
    drawn = rng.random()
    if drawn < 0.10:
        definition["payload"]["arguments"]["fails"] = -1
    elif drawn < 0.25:
        definition["payload"]["arguments"]["fails"] = rng.randint(1, 2)
    if rng.random() < 0.4:
        node["reruns"] = rng.randint(0, 2)
    if rng.random() < 0.2:
        node["priority"] = rng.choice(_LEVELS)
    if rng.random() < 0.2:
        definition["target"] = "side"
    if rng.random() < 0.2:
        node["retry"] = {"limit": rng.randint(0, 3), "delay": 0.2, "max": 1}
        if rng.random() < 0.6:
            definition["payload"]["arguments"]["later"] = rng.randint(1, 3)
    if rng.random() < 0.08:
        definition["deadline"] = _time(now, rng.uniform(1, 7))
    if rng.random() < 0.06:
        node["pendingTimeout"] = round(rng.uniform(1, 5), 1)
    if rng.random() < 0.06:
        node["notBefore"] = _time(now, rng.uniform(0.5, 3))
    if rng.random() < 0.06:
        node["maxRunTime"] = round(rng.uniform(0.1, 2), 2)
    if held and rng.random() < 0.06:
        node["active"] = False
    if policy == "continue":
        if requires and rng.random() < 0.4:
            node["when"] = rng.choice(_WHEN)
        if requires and node.get("when") != "any-failed" and rng.random() < 0.2:
            requires[0] = {"label": requires[0], "optional": True}
    return node


def draw_extension(rng: random.Random, now: datetime, document: dict[str, Any], number: int) -> dict[str, Any]:
    """Some more tasks, which require some that are there, or groups, or each other."""
    there, policy = list(document["tasks"]), document["failurePolicy"]
    labels = [f"x{number}-{n}" for n in range(rng.randint(1, 5) if rng.random() < 0.95 else 110)]
    tasks: dict[str, Any] = {}
    for place, label in enumerate(labels):
        tasks[label] = draw_node(rng, now, [*rng.sample(there, min(4, len(there))), *labels[:place]], policy)
        groups = list(document.get("groups", {}))
        if groups and rng.random() < 0.15:
            tasks[label]["requires"] = [rng.choice(groups)]
    extension: dict[str, Any] = {"tasks": tasks}
    if rng.random() < 0.2:
        extension["groups"] = _groups(rng, labels, held=True, name=f"x{number}g")
    return extension


def draw_edit(rng: random.Random, now: datetime, document: dict[str, Any]) -> dict[str, Any]:
    """Change or take away tasks; it may ask for what cannot be."""
    labels, groups = list(document["tasks"]), list(document.get("groups", {}))
    drawn = rng.sample(labels, min(len(labels), rng.randint(1, 4)))
    if groups and rng.random() < 0.1:
        return {"deleteGroups": [rng.choice(groups)]}
    if rng.random() < 0.3:
        return {"delete": drawn}
    edit: dict[str, Any] = {"update": {label: _update(rng, now, labels, label) for label in drawn}}
    if len(drawn) > 1 and rng.random() < 0.3:
        del edit["update"][drawn[0]]
        edit["delete"] = [drawn[0]]
    return edit


def _update(rng: random.Random, now: datetime, labels: list[str], label: str) -> dict[str, Any]:
    before = labels[: labels.index(label)]
    changes: dict[str, Any] = {
        "requires": sorted(rng.sample(before, min(len(before), rng.randint(0, 3)))),
        "reruns": rng.randint(0, 3),
        "deadline": rng.choice([None, _time(now, rng.uniform(1, 6))]),
        "notBefore": rng.choice([None, _time(now, rng.uniform(0.2, 2))]),
        "pendingTimeout": rng.choice([None, round(rng.uniform(1, 5), 1)]),
        "maxRunTime": rng.choice([None, round(rng.uniform(0.2, 3), 1)]),
        "active": rng.random() < 0.7,
        "priority": rng.choice(_LEVELS),
        "task": _work(rng, 0.3),
    }
    return {name: changes[name] for name in rng.sample(list(changes), rng.randint(1, 3))}


def _work(rng: random.Random, seconds_max: float) -> dict[str, Any]:
    return {"payload": {"call": "work", "arguments": {"seconds": round(rng.uniform(0, seconds_max), 3)}}}


def _time(now: datetime, seconds: float) -> str:
    return (now + timedelta(seconds=seconds)).isoformat()
