"""The report of a soak, as Markdown and as JSON. It states figures and judges nothing."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.checker import Verdict
from tests.chaos.soak import Options

_SHOWN_MAX = 20


def percentiles(values: Sequence[float]) -> dict[str, float | int | None]:
    """p50, p99 and max, by rank."""
    ordered = sorted(values)

    def at(share: float) -> float | None:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 1) if ordered else None

    return {"count": len(ordered), "p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


def summary(verdict: Verdict, options: Options, fire_seconds: float) -> dict[str, Any]:
    """All figures."""
    return {
        "options": dataclasses.asdict(options),
        "secondsUnderFire": round(fire_seconds, 1),
        "boundSeconds": options.bound_seconds,
        "graphs": verdict.graphs,
        "tasks": verdict.tasks,
        "ends": dict(verdict.ends),
        "kills": {"total": verdict.kills.total(), **verdict.kills, "withWorkInHand": verdict.kills_with_work},
        "stops": verdict.stops,
        "faults": dict(verdict.faults),
        "counts": {
            "lost": len(verdict.lost),
            "unexpected": len(verdict.unexpected),
            "duplicated": verdict.duplicated,
            "recovered": {
                "graphsHit": verdict.hit_graphs,
                "graphs": verdict.recovered_graphs,
                "runs": verdict.recovered_runs,
            },
        },
        "stuck": len(verdict.stuck),
        "unjustified": len(verdict.unjustified),
        "broken": len(verdict.broken),
        "runs": dict(verdict.runs),
        "executions": verdict.executions,
        "zombiesTurnedAway": verdict.zombies,
        "extensions": dict(verdict.extensions),
        "rerunByHand": {"failed": verdict.by_hand, "afterSixLostLeases": verdict.exceptions},
        "poison": verdict.poison,
        "messagesLeft": verdict.messages_left,
        "restSeconds": round(verdict.rest_seconds, 1),
        "recoverySeconds": {
            "runGivenUp": percentiles(verdict.given_up_seconds),
            "runDoneAgain": percentiles(verdict.run_seconds),
            "messageHandled": percentiles(verdict.message_seconds),
        },
        "anomalies": [
            *verdict.lost,
            *verdict.unexpected,
            *verdict.unjustified,
            *(f"graph {each} was not at rest within {options.rest_seconds:g} s" for each in verdict.stuck),
            *verdict.broken,
        ],
        "good": verdict.good,
    }


def as_json(verdict: Verdict, options: Options, fire_seconds: float) -> str:
    return json.dumps(summary(verdict, options, fire_seconds), indent=2)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{value:,} {name}" for name, value in Counter(counts).most_common()) or "none"


def as_markdown(verdict: Verdict, options: Options, fire_seconds: float) -> str:
    """The report for people."""
    made = summary(verdict, options, fire_seconds)
    kills = {name: made["kills"][name] for name in ("worker", "handler", "submitter") if name in made["kills"]}
    recovered = made["counts"]["recovered"]
    lines = [
        f"# Soak: {'all is well' if verdict.good else 'NOT well'}",
        "",
        (
            f"{made['graphs']:,} graphs, {made['tasks']:,} tasks, {fire_seconds / 60:.1f} minutes under fire, "
            f"{made['kills']['total']:,} SIGKILLs ({fire_seconds / max(1, made['kills']['total']):.2f} s from one to "
            f"the next); {options.handlers} handlers, {options.workers} workers of 4 slots, seed {options.seed}."
        ),
        "",
        "| what | count |",
        "|---|---|",
        f"| **lost** (accepted, and not ended as it should) | {made['counts']['lost']} |",
        f"| **stuck** (not at rest {options.rest_seconds:g} s after the last fault) | {made['stuck']} |",
        f"| **runs that nothing justifies** | {made['unjustified']} |",
        f"| **unexpected** (rows or executions that nobody asked for) | {made['counts']['unexpected']} |",
        f"| contradictions in rows, journals, doctor's findings, exit codes | {made['broken']} |",
        (
            f"| **duplicated** (work done again, as its first result died with its process) | "
            f"{made['counts']['duplicated']} |"
        ),
        f"| **recovered** graphs, of those that a kill hit | {recovered['graphs']} of {recovered['graphsHit']} |",
        f"| recovered runs (lost with their worker, and then done) | {recovered['runs']} |",
        "",
        "| what happened | count |",
        "|---|---|",
        f"| SIGKILLs, by whom they hit | {_counted(kills)} |",
        f"| … with messages in hand (handlers and workers) | {made['kills']['withWorkInHand']:,} |",
        f"| processes stopped for longer than a lease | {made['stops']} |",
        f"| requests that went wrong | {_counted(made['faults'])} |",
        f"| graphs, by how they ended | {_counted(made['ends'])} |",
        f"| runs, by what became of them | {_counted({k: v for k, v in made['runs'].items() if ':' not in k})} |",
        (
            f"| runs lost, by why | "
            f"{_counted({k.removeprefix('lost: '): v for k, v in made['runs'].items() if ':' in k})} |"
        ),
        f"| executions that tasks wrote down themselves | {made['executions']:,} |",
        f"| late results of zombies, turned away | {made['zombiesTurnedAway']} |",
        f"| extensions, by their answer | {_counted(made['extensions'])} |",
        (
            f"| tasks rerun by hand: failed for good; after six lost leases | "
            f"{made['rerunByHand']['failed']}; {made['rerunByHand']['afterSixLostLeases']} |"
        ),
        f"| messages set aside as poison; left on queues | {made['poison']}; {made['messagesLeft']} |",
        "",
        (
            f"| recovery, in seconds (bound T = {options.bound_seconds:g}: visibility {options.lease_seconds:g} + "
            f"lease {options.lease_seconds:g} + 2 × sweep {options.sweep_seconds:g}) | count | p50 | p99 | max |"
        ),
        "|---|---|---|---|---|",
    ]
    names = {
        "runGivenUp": "from a kill (or stop) until its run is given up",
        "runDoneAgain": "… until the run that replaces it is committed",
        "messageHandled": "from a kill until a message that it had in hand is handled to its end",
    }
    for key, name in names.items():
        found = made["recoverySeconds"][key]
        lines.append(f"| {name} | {found['count']:,} | {found['p50']} | {found['p99']} | {found['max']} |")
    lines.append(f"| from the last fault until everything is at rest (worst round) | | | | {made['restSeconds']} |")
    if made["anomalies"]:
        lines += ["", "## Anomalies", "", *(f"- {each}" for each in made["anomalies"][:_SHOWN_MAX])]
        if len(made["anomalies"]) > _SHOWN_MAX:
            lines.append(f"- … and {len(made['anomalies']) - _SHOWN_MAX:,} more")
    return "\n".join(lines) + "\n"
