"""The scenes of the demonstration. Each takes a stage, and raises BrokenPromise where something is not as promised."""

import asyncio
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from taskgraph.documents.read import document_from_object
from taskgraph.documents.recurrence import Recurrence
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.schedules import Schedules
from taskgraph.interfaces.app import App
from taskgraph.protocol.schedule_rules import Overlap
from taskgraph.queries.graphs import Queries
from taskgraph.queries.values import TaskStatus
from taskgraph.queries.workers import WorkerStatus, workers
from taskgraph.testing import HurriedClock
from tests.demonstration.stage import BrokenPromise, Stage, lives
from tests.e2e.processes import command

SLOTS = 8
WIDE = 200
QUIET_SECONDS = 2.0
"""So long nothing may begin while it is paused; a worker that may take work does so within 0.1 s."""

NIGHTS = (
    # name, zone, cron, the noon before, fires that there must be, in UTC
    ("berlin-25h", "Europe/Berlin", "30 2 * * *", "2026-10-23", "10-24T00:30 10-25T00:30 10-26T01:30"),
    ("newyork-25h", "America/New_York", "30 1 * * *", "2026-10-30", "10-31T05:30 11-01T05:30 11-02T06:30"),
    ("newyork-23h", "America/New_York", "30 2 * * *", "2027-03-12", "03-13T07:30 03-14T07:00 03-15T06:30"),
    ("berlin-23h", "Europe/Berlin", "30 2 * * *", "2027-03-26", "03-27T01:30 03-28T01:00 03-29T00:30"),
)
STEP_SECONDS = 1800.0
LOOKS_MAX = 5


def marked(then: str = "exec sleep 600") -> dict[str, Any]:
    """A command that leaves its process id in begun/LABEL.RUN, and goes on as it is told."""
    return command("sh", "-c", f"echo $$ > begun/$TASKGRAPH_LABEL.$TASKGRAPH_RUN_ID; {then}")


def gated(gate: str) -> dict[str, Any]:
    """One that waits for a file."""
    return marked(f"while ! test -e {gate}; do sleep 0.05; done")


def after(node: dict[str, Any], *labels: str) -> dict[str, Any]:
    """The same, after these tasks."""
    return {**node, "requires": list(labels)}


def tasks_of(stage: Stage, graph_id: str) -> dict[str, TaskStatus]:
    """The tasks of a graph by label, from their rows."""
    found = stage.ask(lambda app: app.queries.tasks(graph_id, limit=1000))
    return {each.label: each for each in found}


def workers_of(stage: Stage) -> list[WorkerStatus]:
    """Who is registered."""
    return stage.ask(lambda app: workers(app.tables, app.clock.now()))


# --- schedules ---


def schedules(stage: Stage) -> None:
    """nightly schedules of two zones through nights of 25 and of 23 hours, by a clock that is moved by hand."""
    stage.note(
        "two schedulers, one with a clock 3 s ahead, look at once every half hour of it, at rows of the real store"
    )
    walked = stage.ask(walk)
    for (name, zone, cron, _, expected), fires in zip(NIGHTS, walked, strict=True):
        told, before = [], None
        for fire in fires:
            local = fire.astimezone(ZoneInfo(zone))
            gap = "" if before is None else f"  {(fire - before).total_seconds() / 3600:g} h later"
            told.append(f"  {name}  “{cron}”  {local:%a %d %b %Y %H:%M %Z}  {fire:%Y-%m-%dT%H:%MZ}{gap}")
            before = fire
        print(*told, sep="\n", flush=True)
        if [f"{fire:%m-%dT%H:%M}" for fire in fires] != expected.split():
            raise BrokenPromise(f"{name}: “{cron}” in {zone} fires at {expected}, in UTC")
    stage.promise(
        True, "each fired once in every night: at the first 01:30 of two, and at 03:00 where there is no 02:30"
    )
    stage.background("serve", "--worker", "4")
    names = [
        f"{name}-{fire:%Y%m%dT%H%M%SZ}" for (name, *_), fires in zip(NIGHTS, walked, strict=True) for fire in fires
    ]
    stage.wait(
        lambda: all(state == "finished" for state in stage.ask(lambda app: states_of(app, names))),
        "the graphs of all fires finish",
    )
    stage.tg("list", "--schedule", NIGHTS[0][0])
    graphs = stage.ask(lambda app: app.queries.graphs(limit=1000))
    stage.promise(
        sorted(each.graph_id for each in graphs) == sorted(names),
        f"there are {len(graphs)} graphs, one for each fire, and all of them have finished",
    )


async def states_of(app: App, names: list[str]) -> list[str]:
    """The states of these graphs."""
    return [str(await app.queries.state(name)) for name in names]


async def walk(app: App) -> list[list[datetime]]:
    """Move the clocks through each night; gives what fired, from the rows of the graphs."""
    clocks = [HurriedClock(datetime(2026, 10, 1, tzinfo=UTC), seed=f"{app.settings.prefix}{n}") for n in range(2)]
    lookers = []
    for clock in clocks:
        handlers = Handlers(Records(app.tables, clock), app.queues, clock, app.handlers.names)
        lookers.append(Schedules(handlers, Queries(app.tables, app.queues, clock, app.handlers.names)))
    document = document_from_object({"tasks": {"report": {"task": {"payload": {"command": ["date"]}}}}})
    walked = []
    for name, zone, cron, day, expected in NIGHTS:
        noon = datetime.fromisoformat(f"{day}T12:00:00+00:00")
        for ahead, clock in enumerate(clocks):
            clock.advance((noon - clock.now()).total_seconds() + 3.0 * ahead)
        # The graphs are run later, so that none of them would be over in time for the next fire.
        await lookers[0].create(name, document, Recurrence(cron=cron, timezone=zone), overlap=Overlap.ALLOW)
        for _ in range(int(timedelta(days=len(expected.split())).total_seconds() / STEP_SECONDS)):
            for clock in clocks:
                clock.advance(STEP_SECONDS)
            for _ in range(LOOKS_MAX):  # who comes second to a row looks again
                looked = await asyncio.gather(*(each.look() for each in lookers))
                assert not any(each.failed for each in looked), looked
                if not any(each.busy for each in looked):
                    break
        await lookers[0].set_active(name, active=False)
        fired = [each.fired_for for each in await app.queries.graphs(limit=1000, schedule=name)]
        walked.append(sorted(moment for moment in fired if moment is not None))
    return walked


# --- cancel ---


def cancel(stage: Stage) -> None:
    """a graph of 200 tasks is cancelled while 8 of them run."""
    file = stage.graph("wide", {f"t{n:03}": marked() for n in range(WIDE)})
    stage.background("serve")
    stage.background("worker", "--slots", str(SLOTS), "--lease-seconds", "6")
    stage.tg("submit", file, "--id", "wide", only="created")
    stage.wait(lambda: len(stage.begun()) == SLOTS, f"{SLOTS} commands begin")
    pids = stage.begun()
    stage.promise(all(map(lives, pids.values())), f"{SLOTS} commands run: processes {sorted(pids.values())}")
    began, asked = time.monotonic(), datetime.now(UTC)
    stage.tg("cancel", "wide", "--reason", "superseded", "--wait")
    took = time.monotonic() - began
    stage.tg("status", "wide", only="state|cancelled")
    stage.promise(
        not any(map(lives, pids.values())) and stage.begun().keys() == pids.keys(),
        "these processes are gone, and no other command has begun",
    )

    async def look(app: App) -> tuple[list[dict[str, Any]], list[Any]]:
        rows = [dict(row.columns) async for row in app.queries.rows("wide", "task:")]
        return rows, await app.queries.events("wide", limit=10_000)

    rows, events = stage.ask(look)
    (fence,) = [each.time for each in events if each.kind == "graph-cancelling"]
    claimed = [row["started"] for row in rows if "started" in row]
    late = [moment for moment in claimed if moment > fence]
    kinds = Counter(each.kind for each in events)
    stage.promise(
        (len(claimed), len(late)) == (SLOTS, 0), f"claims by the rows: {len(claimed)}, after the fence: {len(late)}"
    )
    stage.promise(
        kinds["task-cancelled"] == WIDE and events[-1].kind == "graph-cancelled",
        f"the journal has {kinds['task-cancelled']} cancelled tasks, then the end of the graph",
    )
    before, over = (fence - asked).total_seconds(), (events[-1].time - fence).total_seconds()
    stage.note(
        f"from the command to the fence {before:.1f} s, to the end of the graph {over:.1f} s; it took {took:.1f} s"
    )


# --- a worker that is killed ---


def killed(stage: Stage) -> None:
    """a worker is killed with SIGKILL while it runs four tasks; they complete elsewhere."""
    quick = ("--slots", "4", "--lease-seconds", "3")
    file = stage.graph("lost", {f"t{n}": gated("gate") for n in range(4)})
    stage.background("serve")
    first = stage.background("worker", *quick, name="first")
    stage.tg("submit", file, "--id", "lost", only="created")
    stage.wait(lambda: len(stage.begun()) == 4, "four commands begin")
    stage.wait(lambda: [each for each in workers_of(stage) if len(each.running) == 4], "its row tells of them")
    stage.tg("workers")
    pids = stage.begun()
    (victim,) = workers_of(stage)
    began = time.monotonic()
    os.kill(first.pid, signal.SIGKILL)
    print(f"$ kill -KILL {first.pid}", flush=True)
    stage.background("worker", *quick, name="second")
    stage.wait(lambda: not any(map(lives, pids.values())), "the commands of the dead worker end", 20)
    stage.promise(True, f"its commands {sorted(pids.values())} are gone too: {time.monotonic() - began:.1f} s")
    stage.wait(lambda: {f"t{n}.1" for n in range(4)} <= stage.begun().keys(), "the tasks begin again")
    stage.note(f"all four run again {time.monotonic() - began:.1f} s after the kill")
    stage.open("gate")
    stage.wait(lambda: stage.ask(lambda app: app.queries.state("lost")) == "finished", "the graph finishes")
    stage.wait(lambda: any(each.state == "gone" for each in workers_of(stage)), "the dead worker counts as gone")
    stage.tg("workers")
    stage.tg("task", "lost", "t0", only="state|run |worker|retries|reason")
    tasks = tasks_of(stage, "lost").values()
    spent = [(each.state, each.run, each.retries_left) for each in tasks]
    stage.promise(spent == [("completed", 1, 4)] * 4, "each completed in run 1, with one of five retries spent")
    stage.promise(all(each.worker != victim.name for each in tasks), "none of them by the worker that was killed")


# --- pause ---


def paused(stage: Stage) -> None:
    """a graph is paused and resumed, then a group of it, then a target for all graphs."""
    wait = {name: after(marked("true"), "gate") for name in ("a", "b", "c", "d")}
    groups = {"slow": {"tasks": ["c", "d"]}}
    file = stage.graph("calm", {"gate": gated("gate"), **wait}, groups=groups)
    stage.background("serve", "--worker", "4")
    stage.tg("submit", file, "--id", "calm", only="created")
    stage.wait(lambda: "gate.0" in stage.begun(), "the first command begins")
    stage.tg("pause", "calm", "--reason", "the disk is full", "--wait")
    stage.open("gate")
    stage.wait(lambda: tasks_of(stage, "calm")["gate"].state == "completed", "what ran runs to its end")
    time.sleep(QUIET_SECONDS)
    stage.promise(set(stage.begun()) == {"gate.0"}, f"what ran has completed, and nothing began in {QUIET_SECONDS:g} s")
    stage.tg("why", "calm", "a")
    stage.tg("pause", "calm", "--group", "slow", "--wait")
    stage.tg("resume", "calm", "--wait")
    stage.wait(lambda: {"a.0", "b.0"} <= stage.begun().keys(), "the others begin")
    time.sleep(QUIET_SECONDS)
    stage.promise(
        set(stage.begun()) == {"gate.0", "a.0", "b.0"},
        f"a and b ran; nothing of the group began in {QUIET_SECONDS:g} s",
    )
    stage.tg("resume", "calm", "--group", "slow", "--wait")
    stage.tg("watch", "calm", only="✓")
    stage.promise(len(stage.begun()) == 5, "all five have run, each once")
    stage.tg("pause", "--target", "default", "--reason", "new drivers", "--wait")
    stage.tg("submit", stage.graph("held", {"held": marked("true")}), "--id", "held", only="created")
    time.sleep(QUIET_SECONDS)
    stage.promise("held.0" not in stage.begun(), f"nothing of another graph began in {QUIET_SECONDS:g} s")
    stage.tg("why", "held", "held")
    stage.tg("resume", "--target", "default")
    began = time.monotonic()
    stage.wait(lambda: "held.0" in stage.begun(), "the task begins")
    stage.promise(True, f"it began {time.monotonic() - began:.1f} s later")


# --- extensions ---


def edits(stage: Stage) -> None:
    """edits and extensions of a running graph are refused with the reason, and accepted."""
    tasks = {
        "gate": gated("gate"),
        "bench": after(command("echo", "bench"), "gate"),
        "publish": after(command("echo", "old"), "bench"),
    }
    file = stage.graph("grow", tasks)
    more = stage.graph("more", {"late": after(command("echo", "late"), "gate")})
    change = stage.folder / "change.json"
    publish = {"requires": ["gate"], "task": command("echo", "new")["task"], "reruns": 1}
    change.write_text(json.dumps({"update": {"publish": publish}, "delete": ["bench"], "reason": "no time for it"}))
    stage.background("serve", "--worker", "2")
    stage.tg("submit", file, "--id", "grow", only="created")
    stage.wait(lambda: "gate.0" in stage.begun(), "the gate begins")
    stage.tg("edit", "grow", "--task", "gate", "--reruns", "3", code=4)
    stage.tg("edit", "grow", "--delete", "bench", code=4)
    stage.tg("edit", "grow", "--task", "bench", "--requires", "publish", code=4)
    stage.tg("edit", "grow", change.name, "--if-revision", "7", code=4)
    row = {label: (each.state, each.reruns_left) for label, each in tasks_of(stage, "grow").items()}
    left = {"gate": ("running", 0), "bench": ("unscheduled", 0), "publish": ("unscheduled", 0)}
    stage.promise(row == left, "all four were refused, and no task is another")
    stage.tg("edit", "grow", change.name, "--if-revision", "0", "--plan", only="update|delete|edited|requires:")
    for _ in range(2):
        stage.tg("edit", "grow", change.name, "--if-revision", "0", only="revision")
    stage.tg("pause", "grow", "--wait")
    stage.tg("extend", "grow", more, "--request", "more", only="staged")
    stage.tg("resume", "grow", "--wait")
    stage.wait(lambda: "late" in tasks_of(stage, "grow"), "what was asked for while it was paused is made")
    stage.tg("extend", "grow", more, "--request", "more", only="added")
    stage.open("gate")
    stage.wait(lambda: stage.ask(lambda app: app.queries.state("grow")) == "finished", "the graph finishes")
    stage.tg("show", "grow")
    told = stage.tg("logs", "grow", "publish")
    stage.promise("new" in told and "old" not in told, "what ran is what the edit said")
    kinds = Counter(each.kind for each in stage.ask(lambda app: app.queries.events("grow")))
    states = {label: each.state for label, each in tasks_of(stage, "grow").items()}
    wanted = dict.fromkeys(("gate", "publish", "late"), "completed")
    stage.promise(states == wanted, "one task went, one came, and one is another")
    stage.promise((kinds["graph-edited"], kinds["graph-extended"]) == (1, 1), "each of it was done once")
    stage.note(f"the journal: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}")


# --- notices ---


def webhook(stage: Stage) -> None:
    """a receiver of webhooks is killed and started again in mid-stream, and misses nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    hook = {"webhook": f"http://127.0.0.1:{port}/hook"}
    tasks = {"t0": command("true"), **{f"t{n}": after(gated(f"gate{n}"), f"t{n - 1}") for n in range(1, 4)}}
    for node in tasks.values():
        node["notify"] = {"onSuccess": hook}
    file = stage.graph("told", tasks, notify={"onFinished": hook})
    box = stage.folder / "received"

    def received() -> list[dict[str, Any]]:
        return [json.loads(line) for line in box.read_text().splitlines()] if box.exists() else []

    def channel(app: App) -> Any:
        return app.queries.channels("told")

    first = stage.program("tests.demonstration.receiver", port, "received", name="receiver")
    stage.background("serve", "--worker", "2")
    stage.tg("submit", file, "--id", "told", only="created")
    stage.open("gate1")
    stage.wait(lambda: len(received()) == 2, "the first two notices")
    stage.wait(lambda: stage.ask(channel)[0].delivered >= 2, "the channel's row tells of them")
    os.kill(first.pid, signal.SIGKILL)
    print(f"$ kill -KILL {first.pid}", flush=True)
    stage.open("gate2")
    stage.wait(lambda: stage.ask(channel)[0].failures, "an attempt that fails")
    stage.tg("notices", "told")
    stage.open("gate3")
    stage.program("tests.demonstration.receiver", port, "received", name="receiver")
    stage.wait(lambda: received()[-1]["type"] == "graph-finished", "the last notice")
    for each in received():
        print(f"  {each['id']}  {each['type']}  {each.get('label', '')}")
    stage.wait(lambda: str(stage.ask(channel)[0].state) == "done", "the channel to be done")
    ids = [each["id"] for each in received()]
    labels = [each.get("label") for each in received()]
    stage.promise(labels == ["t0", "t1", "t2", "t3", None], "every notice came, in order")
    stage.promise(len(set(ids)) == len(ids) == 5, "each id once")


SCENES: dict[str, Callable[[Stage], None]] = {
    "schedules": schedules,
    "cancel": cancel,
    "killed": killed,
    "paused": paused,
    "edits": edits,
    "webhook": webhook,
}
