"""`scripts/mutate`: how many small changes of the protocol's code the tests notice, and which ones they do not.

mutmut says what the changes are (see tests/mutation/mutants.py), and tests/mutation/runner.py plays the tests against
each: mutmut's own runner collects the tests anew for each mutant, and would take days. A mutant takes a quarter of
a second to a second of one core, and the first run some minutes more, in which each test is played once: all modules
take hours, and `--sample 10` takes every tenth change. It is no part of scripts/test.

Exit code 1 if less than 95 % were killed, or if a survivor is explained nowhere: tests/mutation/survivors.txt says of
each why it is as good as the original. Never reached are changes of lines that no test reaches at all.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.runner import KILLED, SURVIVED, TIMEOUT, UNREACHED, Results, default_folder, run
from tests.mutation.survivors import explanations

MODULES: Final = (
    "protocol.decide",
    "protocol.runs",
    "protocol.relays",
    "protocol.lifecycle",
    "protocol.propagation",
    "protocol.extension",
    "protocol.rows",
    "engine.commit",
    "engine.handlers",
    "engine.transact",
    "engine.dispatch",
    "engine.listeners",
    "engine.control",
    "engine.requests",
    "engine.live_index",
    "protocol.extension_plan",
    "engine.sweep",
    "protocol.conditions",
    "protocol.cancel",
    "protocol.pause",
    "protocol.edit",
    "protocol.concurrency",
    "protocol.set_limit",
    "engine.plans",
    "protocol.edit_plan.names",
    "protocol.edit_plan.definitions",
    "protocol.edit_plan.edges",
    "protocol.edit_plan.plan",
    "protocol.dispatch_windows",
    "engine.row_cache",
    "protocol.layout",
    "protocol.wiring",
    "protocol.definitions",
    "protocol.schedule_rules",
    "protocol.limited_backlog",
    "model.columns",
    "documents.edit_document",
    "queries.targets",
    "documents.groups",
    "protocol.notices",
    "documents.results",
    "documents.parameters",
    "worker.permits",
    "model.placement",
    "model.priorities",
    "documents.recurrence",
    "documents.placeholders",
    "engine.delete",
    "model.timing",
    "engine.addresses",
    "engine.clock_trust",
    "engine.archive_file",
    "protocol.invariants.columns",
    "protocol.invariants.edges",
    "protocol.invariants.examine",
    "protocol.invariants.findings",
    "protocol.invariants.graph",
    "protocol.invariants.groups_and_limits",
    "protocol.invariants.progress",
    "protocol.invariants.requests",
    "protocol.invariants.snapshot",
    "protocol.invariants.standstill",
    "protocol.invariants.tasks",
    "documents.graph_algorithms",
    "documents.read",
    "documents.checks",
    "documents.canonical",
    "documents.references",
    "model.foreign_times",
    "model.facts",
    "documents.problems",
    "documents.schema_check",
    "model.json_strict",
    "protocol.leases",
    "model.messages",
    "model.ids",
    "documents.plan",
    "interfaces.operations.rerun",
    "protocol.rerun",
    "model.secrecy",
    "engine.signing",
    "protocol.at_rest",
    "interfaces.operations.waiting",
)

KILLED_MIN_PERCENT: Final = 95.0

TESTS: Final = (
    "tests/unit/test_addresses.py",
    "tests/unit/test_ages.py",
    "tests/unit/test_cancellation.py",
    "tests/unit/test_conditions.py",
    "tests/unit/test_digraph.py",
    "tests/unit/test_doctor_diagnosis.py",
    "tests/unit/test_documents.py",
    "tests/unit/test_documents_form.py",
    "tests/unit/test_documents_groups.py",
    "tests/unit/test_documents_policies.py",
    "tests/unit/test_edit_rules.py",
    "tests/unit/test_edits.py",
    "tests/unit/test_ends.py",
    "tests/unit/test_extending.py",
    "tests/unit/test_extending_rules.py",
    "tests/unit/test_facts.py",
    "tests/unit/test_fencing.py",
    "tests/unit/test_grouping.py",
    "tests/unit/test_handlers.py",
    "tests/unit/test_holding.py",
    "tests/unit/test_row_cache.py",
    "tests/unit/test_layout.py",
    "tests/unit/test_layout_groups.py",
    "tests/unit/test_limited_backlog.py",
    "tests/unit/test_leasing.py",
    "tests/unit/test_limiting.py",
    "tests/unit/test_messages.py",
    "tests/unit/test_notice_rules.py",
    "tests/unit/test_notices.py",
    "tests/unit/test_outputs.py",
    "tests/unit/test_params.py",
    "tests/unit/test_placement.py",
    "tests/unit/test_planning.py",
    "tests/unit/test_planning_groups.py",
    "tests/unit/test_priorities.py",
    "tests/unit/test_propagation.py",
    "tests/unit/test_records.py",
    "tests/unit/test_recurrence.py",
    "tests/unit/test_reruns.py",
    "tests/unit/test_rows.py",
    "tests/unit/test_rows_reference.py",
    "tests/unit/test_schedule_rows.py",
    "tests/unit/test_scheduling.py",
    "tests/unit/test_secrecy.py",
    "tests/unit/test_stalling.py",
    "tests/unit/test_standing.py",
    "tests/unit/test_submission.py",
    "tests/unit/test_sweep.py",
    "tests/unit/test_sweep_rules.py",
    "tests/unit/test_sweep_times.py",
    "tests/unit/test_timing.py",
    "tests/unit/test_transitions.py",
    "tests/unit/test_transitions_batches.py",
    "tests/unit/test_transitions_rules.py",
    "tests/unit/test_transitions_take.py",
    "tests/unit/test_waiting.py",
    "tests/unit/test_windows.py",
    "tests/scenarios/test_alarms.py",
    "tests/scenarios/test_archives.py",
    "tests/scenarios/test_cancel.py",
    "tests/scenarios/test_crash_points.py",
    "tests/scenarios/test_doctor.py",
    "tests/scenarios/test_doctor_healthy.py",
    "tests/scenarios/test_edits.py",
    "tests/scenarios/test_extensions.py",
    "tests/scenarios/test_facts.py",
    "tests/scenarios/test_failure_policies.py",
    "tests/scenarios/test_gates.py",
    "tests/scenarios/test_graph_life.py",
    "tests/scenarios/test_groups.py",
    "tests/scenarios/test_harmless_messages.py",
    "tests/scenarios/test_holding.py",
    "tests/scenarios/test_keep_schedules.py",
    "tests/scenarios/test_keeping_house.py",
    "tests/scenarios/test_known_rows.py",
    "tests/scenarios/test_limits.py",
    "tests/scenarios/test_lineage_original.py",
    "tests/scenarios/test_lineage_successor.py",
    "tests/scenarios/test_notices.py",
    "tests/scenarios/test_numbered_traces.py",
    "tests/scenarios/test_permits.py",
    "tests/scenarios/test_poison_and_consumer.py",
    "tests/scenarios/test_priorities.py",
    "tests/scenarios/test_queue_loss.py",
    "tests/scenarios/test_repair.py",
    "tests/scenarios/test_reruns.py",
    "tests/scenarios/test_results.py",
    "tests/scenarios/test_retention.py",
    "tests/scenarios/test_routing.py",
    "tests/scenarios/test_wide_graphs.py",
    "tests/hostile/test_archived.py",
    "tests/mutation/histories.py",
)
"""Fast ones, over the store in memory; none that needs the emulator or a process."""

LEFT_OUT: Final = (
    "test_five_thousand_leaves",
    "test_a_thousand_tasks_whose_queues_are_emptied",
    "test_a_submission_that_is_crashed_anywhere_and_repeated",
    "test_an_extension_that_is_crashed_anywhere_and_repeated",
    "test_a_hundred_small_extensions",
    "test_steps_fit_a_commit_whatever_characters_definitions_hold",
    "test_a_request_is_stored_over_as_many_rows_as_it_takes",
    "embedded",
    "test_many_workers_with_long_tasks_are_not_kept_waiting_for_results",
    "test_an_idle_worker_asks_no_queue_of_a_level_that_nobody_uses",
    "test_two_large_graphs_share_workers_though_one_came_first",
    "test_a_worker_without_work_looks_when_it_begins_and_never_again",
    "test_a_queue_holds_no_more_than_is_worked_off_soon",
    "test_a_large_document_takes_seconds",
    "test_they_agree_on_every_single_change",
    "test_hostile_documents_cost_linear_time",
    "test_a_bomb_is_let_go_of",
    "test_a_target_that_goes_on_again_is_not_said_to_be_paused",
    "test_a_command_sees_no_secret_of_its_worker",
)
"""Slow for what they add here."""

PARSER: Final = argparse.ArgumentParser(
    prog="scripts/mutate",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="example: scripts/mutate protocol.decide protocol.propagation --sample 10",
)
PARSER.add_argument("modules", nargs="*", metavar="MODULE", help=f"some of: {', '.join(MODULES)} (default: all)")
PARSER.add_argument("--sample", type=int, default=1, metavar="N", help="only every Nth mutant")
PARSER.add_argument("--again", action="store_true", help="only what survived the last run")
PARSER.add_argument(
    "--budget", type=float, default=10.0, metavar="S", help="seconds of tests that a mutant may survive (default: 10)"
)
PARSER.add_argument("--processes", type=int, default=1, metavar="P", help="mutants at a time (default: 1)")


def main() -> int:
    """Run, report, and say by the exit code whether all is well."""
    options = PARSER.parse_args()
    modules = options.modules or list(MODULES)
    if unknown := sorted(set(modules) - set(MODULES)):
        PARSER.error(f"no such module here: {', '.join(unknown)}")
    last = default_folder() / "survivors.json"
    everything = [mutant for module in modules for mutant in mutants_of(module)]
    mutants = everything[:: options.sample]
    if options.again:
        left = Counter(map(tuple, json.loads(last.read_text())))
        mutants = [mutant for mutant in everything if mutant.key in left]
    results = run(mutants, _arguments(), processes=options.processes, budget=options.budget, tell=_Told(len(mutants)))
    survivors = [m for m in mutants if results.outcome.get(m) in (SURVIVED, UNREACHED)]
    last.parent.mkdir(parents=True, exist_ok=True)
    last.write_text(json.dumps([mutant.key for mutant in survivors]))
    return _report(modules, mutants, results, survivors, whole=options.sample == 1 and not options.again)


def _arguments() -> list[str]:
    tests = [path for path in TESTS if Path(path).exists()]
    return [*tests, "-m", "not slow and not azurite", "-k", " and ".join(f"not {each}" for each in LEFT_OUT)]


class _Told:
    def __init__(self, total: int) -> None:
        self.total = total

    def __call__(self, results: Results) -> None:
        done = len(results.outcome)
        if sys.stderr.isatty() or done % 100 == 0:
            counts = Counter(results.outcome.values())
            left = counts[SURVIVED] + counts[UNREACHED]
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{done} of {self.total}, {left} alive", file=sys.stderr, end=end, flush=True)


def _report(
    modules: Sequence[str], mutants: Sequence[Mutant], results: Results, survivors: Sequence[Mutant], *, whole: bool
) -> int:
    explained = Counter(explanations())
    rows = [_row(module, [m for m in mutants if m.module == module], results) for module in modules]
    total = _row("all", mutants, results)
    print()
    print("| module | mutants | killed | by the clock | survived | never reached | killed, % |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in [*rows, total]:
        print(f"| {' | '.join(row)} |")
    print(f"\n{results.tests} tests, {results.seconds:.0f} s")

    unexplained: list[Mutant] = []
    for mutant in survivors:
        if explained[mutant.key] > 0:
            explained[mutant.key] -= 1
        else:
            unexplained.append(mutant)
    print(
        f"\nsurvivors: {len(survivors)}, explained in tests/mutation/survivors.txt: {len(survivors) - len(unexplained)}"
    )
    if unexplained:
        print("\nexplained nowhere:\n")
        for mutant in unexplained:
            print(f"{mutant.place}\n- {mutant.before}\n+ {mutant.after}\n")
    stale = [key for key in explained.elements() if key[0].partition(":")[0] in modules]
    if whole and stale:
        print("\nexplained, and killed now (take them off the list):\n")
        for place, before, after in stale:
            print(f"{place}\n- {before}\n+ {after}\n")
    killed = sum(results.outcome[m] in (KILLED, TIMEOUT) for m in mutants)
    enough = killed * 100 >= KILLED_MIN_PERCENT * len(mutants)
    return 0 if enough and not unexplained else 1


def _row(name: str, mutants: Iterable[Mutant], results: Results) -> list[str]:
    counts = Counter(results.outcome[mutant] for mutant in mutants)
    total = counts.total()
    killed = counts[KILLED] + counts[TIMEOUT]
    return [
        name,
        str(total),
        str(counts[KILLED]),
        str(counts[TIMEOUT]),
        str(counts[SURVIVED]),
        str(counts[UNREACHED]),
        f"{killed * 100 / total:.1f}" if total else "–",
    ]


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
