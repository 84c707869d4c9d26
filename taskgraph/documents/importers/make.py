"""GNU make's data base, as `LC_ALL=C make -pn GOAL` prints it: a task for each target behind the goals.

It is make that has read the Makefile: variables, patterns and implicit rules are resolved. Order-only prerequisites
count as others do; files without a rule are no tasks; targets that one recipe makes together are one task. Everything
counts as out of date. A recipe that calls make again is one task.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.importers import make_recipes
from taskgraph.documents.importers.shaping import Foreign, Imported, Reader, Shape, shell_task, stand_in
from taskgraph.documents.problems import nearest
from taskgraph.model.json_strict import show

_START: Final = "# Make data base, printed on"
_FILES: Final = "\n# Files\n"
_END: Final = "\n# files hash-table stats"
_RULE: Final = re.compile(r"([^#\t\n].*?)(::?)(?= |$)(.*)")
_DEFAULT_GOAL: Final = re.compile(r"^\.DEFAULT_GOAL := (.+)$", re.MULTILINE)
_SPECIAL: Final = re.compile(r"\.[A-Z_]+")
_RECIPE: Final = re.compile(r"#  (?:recipe|commands) to execute")
_AGAIN: Final = re.compile(r"\$[({]MAKE[)}]")
_AUTOMATIC: Final = re.compile(r"# ([@*<+%^?|][DF]?) := (.*)")
_REMEDY: Final = "Write it by `LC_ALL=C make -pn GOAL >FILE`, in the folder of the Makefile."


@dataclass(slots=True)
class _Target:
    name: str
    line: int
    prerequisites: dict[str, None] = field(default_factory=dict)
    recipe: list[str] = field(default_factory=list)
    automatic: dict[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    no_target: bool = False
    asked: bool = False  # on the command line
    phony: bool = False

    @property
    def is_source(self) -> bool:
        return self.no_target and not self.recipe and not self.prerequisites


def convert(foreign: Foreign) -> Imported:
    reader = Reader(foreign.source)
    text, first_line, sub_makes = _data_base(foreign.text, reader)
    targets = _targets(text, first_line)
    goals = _goals(foreign, text, targets, reader)
    reader.stop_if_any()
    wanted = _behind(goals, targets)
    makers = _makers(wanted, targets)
    labels = {name: reader.label(name) for name in wanted if makers[name] == name}
    variables = make_recipes.variables(text) if foreign.commands and ".ONESHELL" not in targets else None
    shape = Shape()
    kept: list[str] = []
    for name, label in labels.items():
        together = [targets[each] for each in wanted if makers[each] == name] if targets[name].also else [targets[name]]
        needed = {makers[each] for target in together for each in target.prerequisites if each in makers}
        requires = [labels[each] for each in wanted if each in needed and each != name]
        shape.tasks[label] = {"requires": requires, "task": _task(targets[name], variables, kept)}
        shape.places[label] = targets[name].line
    _say(wanted, targets, len(wanted) - len(labels), sub_makes, reader)
    if foreign.commands:
        reader.note_names(kept, "Recipes that take make itself to be put in words, kept as information and not run")
        reader.note("Variables that the Makefile exports are not in the environment of the commands.")
    return reader.shaped(shape)


def _data_base(text: str, reader: Reader) -> tuple[str, int, int]:
    """The last data base of the text, its first line, and how many others there are: those of makes that it called."""
    parts = text.split(_START)
    last = parts[-1]
    if len(parts) == 1 or _FILES not in last:
        message = "The text holds no data base of GNU make."
        reader.problem((), "syntax", message, _REMEDY)
        reader.stop_if_any()
    first = text.count("\n", 0, len(text) - len(last)) + 1
    return last, first, len(parts) - 2


def _targets(text: str, first_line: int) -> dict[str, _Target]:
    begin = text.index(_FILES) + len(_FILES)
    end = text.find(_END, begin)
    line = first_line + text.count("\n", 0, begin)
    found: dict[str, _Target] = {}
    target: _Target | None = None
    not_one = in_recipe = False
    for number, each in enumerate(text[begin : end if end > 0 else len(text)].split("\n"), line):
        if not each:
            target, in_recipe = None, False
        elif each.startswith("# Not a target:"):
            not_one = True
        elif target is None and make_recipes.OF_TARGET.match(each):
            continue  # a variable of the target; its rule follows
        elif target is None:
            rule = _RULE.fullmatch(each)
            if rule is not None:
                target = _Target(rule.group(1), number, no_target=not_one)
                before = found.setdefault(target.name, target)
                target = before  # a second double-colon rule adds to the first
                target.prerequisites.update(dict.fromkeys(rule.group(3).replace(" | ", " ").split()))
                target.prerequisites.pop("|", None)
                not_one = False
        elif in_recipe:
            target.recipe.append(each.removeprefix("\t"))
        elif _RECIPE.match(each):
            in_recipe = True
        elif each.startswith("#  Phony target"):
            target.phony = True
        elif each.startswith("#  Command line target"):
            target.asked = True
        elif each.startswith("#  Also makes:"):
            target.also = tuple(each.partition(":")[2].split())
        elif (automatic := _AUTOMATIC.match(each)) is not None:
            target.automatic[automatic.group(1)] = automatic.group(2)
    return found


def _goals(foreign: Foreign, text: str, targets: dict[str, _Target], reader: Reader) -> list[str]:
    goals = list(foreign.goals) or [name for name, target in targets.items() if target.asked]
    if not goals and (found := _DEFAULT_GOAL.search(text)) is not None:
        goals = found.group(1).split()
    if not goals:
        reader.problem((), "missing", "The Makefile has no goal.", "Name a target by --goal.")
    for goal in goals:
        if goal not in targets or targets[goal].is_source:
            names = [name for name, target in targets.items() if not target.is_source]
            near = "".join(f" Did you mean {show(one)}?" for one in nearest(goal, names, 1))
            reader.problem((), "unknown-label", f"No rule makes {show(goal)}.{near}", _REMEDY)
    return goals


def _behind(goals: Iterable[str], targets: dict[str, _Target]) -> dict[str, None]:
    """The targets behind the goals, in the order of the data base."""
    found: set[str] = set()
    left = [*goals]
    while left:
        name = left.pop()
        target = targets.get(name)
        if target is not None and not target.is_source and name not in found and not _SPECIAL.fullmatch(name):
            found.add(name)
            left += [*target.prerequisites, *target.also]
    return {name: None for name in targets if name in found}


def _makers(wanted: dict[str, None], targets: dict[str, _Target]) -> dict[str, str]:
    """The target that each is made with: itself, or the first of those that one recipe makes."""
    makers: dict[str, str] = {}
    for name in wanted:
        makers.setdefault(name, name)
        for other in targets[name].also:
            if other in wanted and (other not in makers or makers[other] == other):
                makers[other] = makers[name]
    return makers


def _task(target: _Target, variables: Mapping[str, str | None] | None, kept: list[str]) -> dict[str, Any]:
    """variables: None where the recipes are not run."""
    recipe = "\n".join(target.recipe) or None
    if variables is not None and recipe is not None:
        script = make_recipes.script(
            target.recipe, variables, {**target.automatic, "@": target.name.replace("$", "$$")}
        )
        if script is not None:
            return shell_task(script, variables.get("SHELL") or "sh")
        kept.append(target.name)
    return stand_in(None, recipe)


def _say(wanted: dict[str, None], targets: dict[str, _Target], together: int, sub_makes: int, reader: Reader) -> None:
    sources = {each for name in wanted for each in targets[name].prerequisites if each not in wanted}
    without = sum(not targets[name].recipe for name in wanted)
    again = [name for name in wanted if any(map(_AGAIN.search, targets[name].recipe))]
    reader.note_count(without, "One target has no recipe.", "{} targets have no recipe.")
    reader.note_count(len(sources), "One prerequisite is a file without a rule.", "{} prerequisites have no rule.")
    reader.note_count(together, "One target is made together with another.", "{} targets are made with others.")
    reader.note_names(again, "Targets whose recipe calls make again are one task each")
    reader.note_count(
        sub_makes,
        "The data base of one make that was called was left out.",
        "The data bases of {} makes that were called were left out.",
    )
