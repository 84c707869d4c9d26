"""Workflows of GitHub Actions and pipelines of GitLab come in."""

import pytest

from tests.unit.imported import payload, read, shape, wrong

ACTIONS = """\
name: CI
on: {push: {branches: [main]}}
jobs:
  lint:
    runs-on: ubuntu-latest
    continue-on-error: true
    steps:
      - uses: actions/checkout@v4
      - run: make lint
  test:
    needs: lint
    timeout-minutes: 5
    strategy:
      max-parallel: 2
      fail-fast: false
      matrix:
        os: [linux, mac]
        v: [1, 2.0]
        exclude: [{os: mac, v: 1}]
        include:
          - {os: linux, colour: green}
          - {v: 1, tool: x}
          - {os: bsd, v: 3}
  later:
    needs: [test]
    strategy: {matrix: "${{ fromJSON(needs.test.outputs.matrix) }}"}
  report:
    needs: [test, lint]
    if: always()
  rescue: {needs: test, if: "${{ failure() && github.ref == 'x' }}", uses: ./.github/workflows/rescue.yml}
"""


def test_jobs_of_github_and_their_matrix():
    graph = read("github-actions", ACTIONS)
    tests = ["test (linux, 1, green, x)", "test (linux, 2.0, green)", "test (mac, 2.0)", "test (bsd, 3)"]
    assert shape(graph) == {
        "lint": set(),
        **{label: {"lint"} for label in tests},
        "later": {"test"},
        "report": {"test", "lint"},
        "rescue": {"test"},
    }
    document = graph.document
    assert (document.groups["test"].tasks, document.groups["test"].max_in_flight) == (tuple(tests), 2)
    assert document.failure_policy == "continue"
    assert [document.tasks[label].when for label in ("later", "report", "rescue")] == [
        "all-completed",
        "always",
        "any-failed",
    ]
    assert document.tasks["report"].optional == {"lint"}
    assert document.tasks["test (bsd, 3)"].timing == {"maxRunTime": 300}
    assert payload(graph, "test (linux, 1, green, x)")["matrix"] == {
        "os": "linux",
        "v": 1,
        "colour": "green",
        "tool": "x",
    }
    assert payload(graph, "lint")["commandLine"] == "# uses actions/checkout@v4\nmake lint"
    assert graph.notes == (
        "The matrix of “later” is computed when it runs: the job is one task.",
        "Conditions that are not judged, so that these run: “rescue”.",
        "Jobs that call another workflow are one task each: “rescue”.",
    )


def test_a_needed_matrix_that_may_fail():
    text = "jobs:\n  a: {continue-on-error: true, strategy: {matrix: {x: [1, 2]}}}\n  b: {needs: a}\n"
    graph = read("github-actions", text)
    assert graph.document.tasks["b"].requires == ("a",)
    assert graph.document.tasks["b"].optional == {"a"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs:\n  a: {needs: b}\n  c:\n    needs: [aa]\n", [("unknown-label", 2), ("unknown-label", 4)]),
        ("on: push\n", [("missing", 1), ("empty", 1)]),
        ("jobs:\n  a: {needs: b}\n  b: {needs: a}\n", [("cycle", 2)]),
        ("jobs: {a: 1, b: {strategy: {matrix: [1]}}}\n", [("wrong-type", 1), ("wrong-type", 1)]),
        ("jobs:\n  a: [\n", [("syntax", 3)]),
    ],
)
def test_a_bad_workflow_of_github(text: str, expected: list[tuple[str, int]]):
    assert wrong("github-actions", text) == expected


GITLAB = """\
stages: [build, test, deploy]
default: {retry: 1}
include: [{local: /ci/more.yml}, {template: Secrets.yml}]
.base:
  script: [make]
  timeout: 1h 30m
.late: {extends: [.base], retry: {max: 2}}
compile:
  extends: .late
  stage: build
lint: {stage: build, script: lint, allow_failure: true}
unit:
  script: [!reference [.base, script], check]
  parallel: 2
cross:
  stage: test
  needs: [compile]
  script: x
  parallel:
    matrix:
      - {OS: [linux, mac], ARCH: arm}
smoke:
  stage: test
  script: s
  needs: [{job: cross, parallel: {matrix: [{OS: mac, ARCH: arm}]}}, {job: none, optional: true}]
  resource_group: board
ship: {stage: deploy, script: ship, rules: [{if: $CI}]}
clean: {stage: deploy, when: on_failure, script: clean}
never: {stage: deploy, when: never, script: x}
"""
MORE = "more:\n  stage: test\n  needs: [compile]\n  trigger: other/project\ncompile: {script: replaced}\n"


def test_jobs_of_gitlab_their_stages_needs_and_copies():
    graph = read("gitlab-ci", GITLAB, beside={"ci/more.yml": MORE}.get)
    document = graph.document
    before = {"compile", "lint"}
    tests = {"stage test"}
    assert shape(graph) == {
        "more": {"compile"},
        "compile": set(),
        "lint": set(),
        "unit 1/2": before,
        "unit 2/2": before,
        "cross: [linux, arm]": {"compile"},
        "cross: [mac, arm]": {"compile"},
        "smoke": {"cross: [mac, arm]"},
        "ship": tests,
        "clean": tests,
    }
    assert set(document.groups["stage test"].tasks) == {
        "more", "unit 1/2", "unit 2/2", "cross: [linux, arm]", "cross: [mac, arm]", "smoke",
    }  # fmt: skip
    assert document.tasks["unit 1/2"].optional == {"lint"}
    assert [document.tasks[label].reruns for label in ("compile", "lint")] == [2, 1]
    assert document.tasks["compile"].timing == {"maxRunTime": 5400}
    assert document.tasks["clean"].when == "any-failed"
    assert payload(graph, "unit 1/2") == {"commandLine": "make\ncheck"}
    assert document.groups["resource board"].max_in_flight == 1
    assert graph.notes == (
        "Included files that are not given, and were left out: “Secrets.yml”.",
        "Jobs that never run, and were left out: “never”.",
        "Rules that are not judged, so that these run: “ship”.",
        "Jobs that trigger another pipeline are one task each: “more”.",
    )


def test_one_job_of_a_matrix_may_be_needed_by_its_own_name():
    text = "a: {script: x, parallel: {matrix: [{B: [c, d]}]}}\ne: {script: x, needs: ['a: [d]']}\n"
    assert shape(read("gitlab-ci", text))["e"] == {"a: [d]"}


def test_a_stage_whose_jobs_wait_for_none_is_waited_for_with_those_before():
    text = "a: {stage: build, script: x}\nb: {stage: test, needs: [], script: x}\nc: {stage: deploy, script: x}\n"
    assert shape(read("gitlab-ci", text)) == {"a": set(), "b": set(), "c": {"a", "b"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n  script: x\n  needs: [b]\n", [("unknown-label", 3)]),
        ("a:\n  script: x\n  stage: bild\n", [("unknown-label", 3)]),
        ("a:\n  extends: .b\n.c:\n  extends: .c\n", [("unknown-label", 2), ("cycle", 4)]),
        ("a:\n  script: [!reference [.b, script]]\n", [("unknown-label", 2)]),
        ("a:\n  script: x\n  parallel: many\n", [("out-of-range", 3)]),
        ("a: {script: x, needs: [b]}\nb: {script: x, needs: [a]}\n", [("cycle", 1)]),
        (".only: {script: x}\n", [("empty", 1)]),
    ],
)
def test_a_bad_pipeline_of_gitlab(text: str, expected: list[tuple[str, int]]):
    assert wrong("gitlab-ci", text) == expected


def test_values_that_our_documents_refuse_are_read_as_these_programs_do():
    graph = read(
        "github-actions", "on: push\njobs:\n  a:\n    name: yes\n    strategy: {matrix: {v: [010, 1:30, no]}}\n"
    )
    assert [*shape(graph)] == ["a (10)", "a (1:30)", "a (no)"]
