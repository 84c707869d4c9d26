"""Ninja's build.ninja: each build is a task, named by its first output, that requires those that make its inputs.

What is made is what `ninja` makes without a word: the `default` targets, else all that no other build needs; goals name
others. A `phony` build becomes a noop. Order-only and implicit inputs count as inputs do; files that no build makes are
no tasks; a pool becomes a limit. Everything counts as out of date.
"""

import shlex
from collections import Counter
from collections.abc import Iterable

from taskgraph.documents.importers.ninja_text import Build, Statements, read
from taskgraph.documents.importers.shaping import Foreign, Imported, Reader, Shape, shell_task, stand_in
from taskgraph.documents.problems import nearest
from taskgraph.model.json_strict import show


def convert(foreign: Foreign) -> Imported:
    reader = Reader(foreign.source)
    statements = read(foreign, reader)
    makers = _makers(statements, reader)
    reader.stop_if_any()
    wanted = _wanted(statements, makers, foreign.goals, reader)
    shape = Shape()
    labels = {id(build): reader.label(build.outputs[0]) for build in wanted}
    pools: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    sources: set[str] = set()
    for build in wanted:
        label = labels[id(build)]
        requires: dict[str, None] = {}
        for path in (*build.inputs, *build.implicit, *build.ordered):
            if path not in makers:
                sources.add(path)
            elif makers[path] is not build:
                requires[labels[id(makers[path])]] = None
        node = {"requires": list(requires), "task": _task(build, foreign.commands, counts, reader)}
        shape.tasks[label], shape.places[label] = node, build.line
        if pool := build.value("pool"):
            pools.setdefault(pool, []).append(label)
    for pool, members in pools.items():
        if statements.pools.get(pool, 1):  # a depth of 0 is no limit
            shape.limit(f"pool {pool}", members, statements.pools.get(pool, 1), reader)
    _say(counts, len(sources), len(statements.builds) - len(wanted), reader)
    return reader.shaped(shape)


def _makers(statements: Statements, reader: Reader) -> dict[str, Build]:
    makers: dict[str, Build] = {}
    for build in statements.builds:
        for output in build.outputs:
            if makers.setdefault(output, build) is not build:
                message = f"Two builds make {show(output)}."
                reader.problem((), "duplicate-label", message, "Leave one of them out.", build.line or None)
    return makers


def _wanted(statements: Statements, makers: dict[str, Build], goals: Iterable[str], reader: Reader) -> list[Build]:
    """The builds behind the goals, in the order of the text. A validation is made too, and nothing waits for it."""
    targets = list(goals) or statements.defaults
    if not targets:
        used = {path for each in statements.builds for path in (*each.inputs, *each.implicit, *each.ordered)}
        roots = [build for build in statements.builds if used.isdisjoint(build.outputs)]
    else:
        roots = []
        for target in targets:
            if target in makers:
                roots.append(makers[target])
                continue
            near = "".join(f" Did you mean {show(one)}?" for one in nearest(target, makers, 1))
            message = f"No build makes {show(target)}.{near}"
            reader.problem((), "unknown-label", message, "Name a target that `ninja -t targets all` lists.")
    reader.stop_if_any()
    found: set[int] = set()
    left = roots
    while left:
        build = left.pop()
        if id(build) not in found:
            found.add(id(build))
            needed = (*build.inputs, *build.implicit, *build.ordered, *build.validations)
            left += [makers[path] for path in needed if path in makers]
    return [build for build in statements.builds if id(build) in found]


def _task(build: Build, commands: bool, counts: Counter[str], reader: Reader) -> dict[str, object]:
    if build.rule == "phony":
        counts["phony"] += 1
        return stand_in(None, None)
    try:
        command = build.value("command")
        counts["dyndep"] += bool(build.value("dyndep"))
        rspfile, content = build.value("rspfile", quotes=False), build.value("rspfile_content")
    except RecursionError:
        message = f"The variables of the rule {show(build.rule)} name each other in a circle."
        reader.problem((), "cycle", message, "Break the circle.", build.line or None)
        return {}
    counts["empty"] += not command
    counts["rspfile"] += bool(rspfile)
    if not commands or not command:
        return stand_in(None, command)
    folders = {path.rpartition("/")[0]: None for path in (*build.outputs, rspfile)}
    before = [f"mkdir -p {shlex.join(filter(None, folders))}"] if any(folders) else []
    if rspfile:
        before.append(f"printf %s {shlex.quote(content)} >{shlex.quote(rspfile)}")
    return shell_task(" && ".join([*before, command]))


def _say(counts: Counter[str], sources: int, unwanted: int, reader: Reader) -> None:
    for count, one, many in (
        (counts["phony"], "One phony build became a noop.", "{} phony builds became noops."),
        (sources, "One input is a file that no build makes.", "{} inputs are files that no build makes."),
        (unwanted, "One build is not needed for what is made.", "{} builds are not needed for what is made."),
        (counts["empty"], "One rule has no command.", "{} builds have rules without a command."),
        (
            counts["dyndep"],
            "One build has a dyndep file: what Ninja finds in it while it builds is left out.",
            "{} builds have dyndep files: what Ninja finds in them while it builds is left out.",
        ),
    ):
        reader.note_count(count, one, many)
