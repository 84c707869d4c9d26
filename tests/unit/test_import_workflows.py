"""DAGMan, Airflow, Argo and Snakemake come in, and files say themselves which program they are of."""

import json
from typing import Any, get_args

import pytest

from taskgraph.documents.importers import FORMATS, Format, import_graph
from taskgraph.documents.importers.guess import guessed
from taskgraph.interfaces.cli.documents import ImportFormat
from taskgraph.model.errors import InvalidGraph
from tests.unit.imported import payload, read, shape, wrong

DAG = """\
# every command that says something of a node
PARENT A CHILD B C   # stands before its nodes
JOB A a.sub
JOB B b.sub DIR runs NOOP
Job C {
  executable = c
}
SUBDAG EXTERNAL D inner.dag
JOB E e.sub DONE
FINAL F f.sub
PARENT B C E CHILD D
RETRY ALL_NODES 1
RETRY A 3 UNLESS-EXIT 2
VARS A x="1" y="say \\"so\\""
SCRIPT DEFER 4 60 PRE A before.sh $JOB
PRIORITY A 10
PRIORITY B 700
PRIORITY C -5
CATEGORY B heavy
CATEGORY C heavy
MAXJOBS heavy 1
ABORT-DAG-ON A 3
DOT x.dot
"""


def test_nodes_of_dagman():
    graph = read("dagman", DAG.replace("   # stands before its nodes", ""))
    document = graph.document
    assert shape(graph) == {"A": set(), "B": {"A"}, "C": {"A"}, "D": {"B", "C"}, "F": {"D"}}
    assert [node.reruns for node in document.tasks.values()] == [3, 1, 1, 1, 1]
    assert [node.priority for node in document.tasks.values()] == ["high", "highest", "low", "", ""]
    assert payload(graph, "A") == {
        "submitFile": "a.sub",
        "vars": {"x": "1", "y": 'say "so"'},
        "preScript": "before.sh $JOB",
    }
    assert payload(graph, "B") == {"submitFile": "b.sub", "directory": "runs"}
    assert payload(graph, "D") == {"dagFile": "inner.dag"}
    assert (document.groups["category heavy"].tasks, document.groups["category heavy"].max_in_flight) == (("B", "C"), 1)
    assert (document.failure_policy, document.tasks["F"].when) == ("continue", "always")
    assert graph.notes == (
        "A sub-DAG is one task: import its file as a graph of its own.",
        "Of priorities the order was kept, in five levels: above 0 are high and highest.",
        "One node is done, and was left out.",
        "Commands that were left out: “ABORT-DAG-ON”.",
    )


def test_splices_of_dagman_are_put_in():
    files = {
        "inner.dag": "JOB a x\nJOB b x\nJOB c x\nPARENT a CHILD b c\nSPLICE deep deep.dag\nPARENT c CHILD deep\n"
        "CATEGORY a k\nMAXJOBS k 2\n",
        "deep.dag": "JOB z x\n",
        "more.inc": "PARENT S CHILD Y\n",
    }
    text = "JOB X x\nJOB Y y\nSPLICE S inner.dag\nPARENT X CHILD S\nINCLUDE more.inc\nRETRY S+a 2\n"
    graph = read("dagman", text, beside=files.get)
    assert shape(graph) == {
        "X": set(),
        "Y": {"S+b", "S+deep+z"},
        "S+a": {"X"},
        "S+b": {"S+a"},
        "S+c": {"S+a"},
        "S+deep+z": {"S+c"},
    }
    assert graph.document.tasks["S+a"].reruns == 2
    assert graph.document.groups["category S+k"].max_in_flight == 2
    assert wrong("dagman", text) == [("syntax", 3), ("syntax", 4), ("syntax", 5), ("syntax", 6)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JOB A a\nPARENT A CHILD B\nRETRY A many\nFROB A\nJOB C\nJOB A a\n",
         [("syntax", 2), ("syntax", 3), ("syntax", 4), ("syntax", 5), ("syntax", 6)]),
        ("JOB A a\nJOB B b\nPARENT A CHILD B\nPARENT B CHILD A\n", [("cycle", 1)]),
        ("# nothing\n", [("empty", None)]),
    ],
)  # fmt: skip
def test_a_bad_file_of_dagman(text: str, expected: list[tuple[str, int]]):
    assert wrong("dagman", text) == expected


SNAKEMAKE = r"""Building DAG of jobs...
digraph snakemake_dag {
    graph[bgcolor=white, margin=0];
    node[shape=box, style=rounded, fontname=sans];
    edge[penwidth=2, color=grey];
	0[label = "all", color = "0.1 0.6 0.85", style="rounded"];
	1[label = "map\nsample: A", color = "0.1 0.6 0.85", style="rounded,dashed"];
	2[label = "map\nsample: B", style="rounded"];
	3[label = "index", style="rounded"]; 4[label = "index"];
	1 -> 0
	2 -> 0 -> 5 /* and so on */
	3 -> 2; 4 -> 2
	4 -> 4
}
"""


def test_jobs_of_snakemake():
    graph = read("snakemake", SNAKEMAKE)
    assert shape(graph) == {
        "all": {"map (sample: A)", "map (sample: B)"},
        "map (sample: A)": set(),
        "map (sample: B)": {"index #3", "index #4"},
        "index #3": set(),
        "index #4": set(),
        "5": {"all"},
    }
    assert graph.notes == ("One rule requires itself; that was left out.", "One job was done already.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no graph\n", [("syntax", None)]),
        ("digraph g {\n a -> b\n", [("syntax", 3)]),
        ("digraph g {\n a -> { b c }\n}\n", [("syntax", 2)]),
        ("digraph g {\n a -> ;\n}\n", [("syntax", 2)]),
        ("digraph g {\n a -> b ! c\n}\n", [("syntax", 2)]),
        ("digraph g {\n a -> b\n b -> a\n}\n", [("cycle", 2)]),
    ],
)
def test_a_bad_drawing(text: str, expected: list[tuple[str, int]]):
    assert wrong("snakemake", text) == expected


ARGO = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: nightly-}
spec:
  entrypoint: main
  parallelism: 5
  onExit: tidy
  templates:
  - name: main
    dag:
      tasks:
      - {name: get, template: work}
      - name: each
        template: pair
        dependencies: [get]
        withItems: [a, {k: v}]
      - {name: some, template: work, depends: "get.Succeeded && each.Failed"}
      - {name: many, template: work, withParam: "{{tasks.get.outputs.result}}", dependencies: [get]}
      - {name: other, templateRef: {name: elsewhere, template: x}, dependencies: [some], when: "1 == 1"}
  - name: pair
    parallelism: 1
    steps:
    - - {name: first, template: work, continueOn: {failed: true}}
      - {name: beside, template: work, withSequence: {count: "2"}}
    - - {name: second, template: pair}
  - name: work
    retryStrategy: {limit: "3"}
    activeDeadlineSeconds: 60
    container: {image: alpine, command: [sh, -c], args: [make]}
  - {name: tidy, script: {image: alpine, source: rm}}
"""


def test_templates_of_argo_are_put_in_where_they_are_called():
    graph = read("argo", ARGO)
    document = graph.document
    pairs = {}
    for item in ("each(0:a)", "each(1:k:v)"):
        pairs |= {
            f"{item}.first": set(),
            f"{item}.beside(0:0)": set(),
            f"{item}.beside(1:1)": set(),
            f"{item}.second": {f"{item}.first", f"{item}.beside"},
        }
    assert shape(graph) == {
        "get": set(),
        **pairs,
        "some": {"get", "each"},
        "many": {"get"},
        "other": {"some"},
        "onExit": shape(graph)["onExit"],  # looked at below
    }
    assert {*pairs} == {*document.groups["each"].tasks}
    assert document.groups["each"].requires == ("get",)
    assert document.max_in_flight == 5
    assert document.groups["parallelism each(0:a)"].max_in_flight == 1
    assert document.tasks["each(0:a).second"].optional == {"each(0:a).first"}
    assert (document.tasks["get"].reruns, document.tasks["get"].timing) == (3, {"maxRunTime": 60})
    assert payload(graph, "get") == {"kind": "container", "image": "alpine", "commandLine": "sh -c make"}
    assert document.tasks["some"].optional == {"get", "each"}
    assert "Loops over what is known only when they run are one task each: “many”." in graph.notes


def test_what_runs_at_the_end_of_argo_waits_for_all():
    graph = read("argo", ARGO)
    last = graph.document.tasks["onExit"]
    assert last.when == "always"
    reached: set[str] = set()
    left = ["onExit"]
    groups = graph.document.groups
    while left:
        name = left.pop()
        if name in reached:
            continue
        reached.add(name)
        node: Any = groups.get(name) or graph.document.tasks[name]
        left += [*node.requires, *(node.tasks if name in groups else ())]
    assert reached >= set(graph.document.tasks)


def test_the_template_of_argo_to_begin_with():
    template = ARGO.replace("kind: Workflow", "kind: WorkflowTemplate").replace("  entrypoint: main\n", "")
    assert "get" in shape(read("argo", template))
    assert [*shape(read("argo", template, goals=("work",)))] == ["work", "onExit"]
    assert wrong("argo", template, goals=("mian",)) == [("unknown-label", 1)]
    cron = (
        "kind: ConfigMap\n---\napiVersion: argoproj.io/v1alpha1\nkind: CronWorkflow\nspec:\n  schedule: '* * * * *'\n"
        "  workflowSpec:\n    entrypoint: a\n    templates: [{name: a, suspend: {}}]\n"
    )
    assert [*shape(read("argo", cron))] == ["a"]


CIRCLE = """\
kind: Workflow
spec:
  entrypoint: a
  templates:
  - {name: a, dag: {tasks: [{name: b, template: c, dependencies: [d]}, {name: d, template: c, dependencies: [b]}]}}
  - {name: c, suspend: {}}
"""


def test_steps_of_argo_by_name():
    text = (
        "kind: Workflow\nspec:\n  entrypoint: a\n  templates:\n  - name: a\n    steps:\n    - FLIP: {template: b}\n"
        "    - HEADS: {template: b}\n      TAILS: {template: b}\n  - {name: b, suspend: {}}\n"
    )
    assert shape(read("argo", text)) == {"FLIP": set(), "HEADS": {"FLIP"}, "TAILS": {"FLIP"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: Job\n", [("missing", None)]),
        (ARGO.replace("template: pair}", "template: pear}"), [("unknown-label", 25)] ),
        (ARGO.replace("dependencies: [some]", "dependencies: [sum]"), [("unknown-label", 19)]),
        (ARGO.replace("entrypoint: main", "entrypoint: mein"), [("unknown-label", 1)]),
        (CIRCLE, [("cycle", 6)]),
    ],
)  # fmt: skip
def test_a_bad_workflow_of_argo(text: str, expected: list[tuple[str, int]]):
    assert wrong("argo", text) == expected


AIRFLOW = """\
from airflow import DAG
OWN = "own"
with DAG("etl", default_args={"retries": 2}, max_active_tasks=3) as dag:
    a = BashOperator(task_id="a", bash_command="echo 1", execution_timeout=timedelta(minutes=5))
    b, c = BashOperator(task_id="b"), EmptyOperator(task_id=OWN, trigger_rule=TriggerRule.ALL_DONE)
    with TaskGroup("g") as g:
        d = PythonOperator(task_id="d", retries=0)
        e = PythonOperator(task_id="e")
        d >> e
    a >> Label("then") >> [b, c] >> g
    end = EmptyOperator(task_id="end")
    end << g

    @task
    def f(x): ...

    @task(task_id="many")
    def h(x): ...

    last = f(h.expand(x=f(a.output)))
    end.set_downstream(last)
    rest = [b, c]
    chain(a, rest, [d, e])
    chain(*rest)
"""


def test_what_stands_plainly_in_a_file_of_airflow():
    graph = read("airflow", AIRFLOW)
    assert shape(graph) == {
        "a": set(),
        "b": {"a"},
        "own": {"a", "b"},
        "g.d": {"b", "own"},
        "g.e": {"g.d", "own"},
        "end": {"g.e"},
        "f": {"a"},
        "many": {"f"},
        "f__1": {"many", "end"},
    }
    document = graph.document
    assert (document.metadata["name"], document.max_in_flight, document.failure_policy) == ("etl", 3, "continue")
    assert [document.tasks[label].reruns for label in ("a", "g.d", "f")] == [2, 0, 2]
    assert document.tasks["own"].when == "always"
    assert document.tasks["a"].timing == {"maxRunTime": 300}
    assert payload(graph, "a") == {"commandLine": "echo 1", "operator": "BashOperator"}


def test_a_dag_of_airflow_by_decorator_and_by_name():
    text = (
        "from airflow.decorators import dag, task\n"
        "@dag(max_active_tasks=2)\ndef first():\n  @task\n  def x(): ...\n  x()\nfirst()\n"
        "second = DAG(dag_id='second')\ny = Op(task_id='y', dag=second)\n"
        "z = Op(task_id='z', dag=second)\ny.set_downstream([z])\n"
    )
    assert shape(read("airflow", text, goals=("first",))) == {"x": set()}
    assert shape(read("airflow", text, goals=("second",))) == {"y": set(), "z": {"y"}}
    assert wrong("airflow", text) == [("several", None)]
    assert wrong("airflow", text, goals=("third",)) == [("unknown-label", None)]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("for i in range(3):\n  Op(task_id=f'x{i}')\n", 3),
        ("if True:\n  a >> b\n", 3),
        ("c = [Op(task_id=i) for i in 'ab']\n", 3),
        ("def make(n):\n  return Op(task_id=n)\nmake('x')\n", 5),
        ("Op(task_id='x' + y)\n", 3),
        ("a >> elsewhere()\n", 3),
        ("chain(a, *others)\n", 3),
    ],
)
def test_what_would_have_to_be_run_is_a_problem(body: str, line: int):
    text = "with DAG('d'): a = Op(task_id='a'); b = Op(task_id='b')\n#\n" + body
    assert wrong("airflow", text) == [("not-plain", line)]


def test_a_file_of_airflow_that_is_none():
    assert wrong("airflow", "import x\n") == [("missing", None)]
    assert wrong("airflow", "import x\nx =\n") == [("syntax", 2)]
    chain = " >> ".join(["a"] * 5_000)
    assert wrong("airflow", f"with DAG('d'): a = Op(task_id='a')\n{chain}\n")[0][0] in ("depth", "syntax")


def serialized() -> dict[str, Any]:
    def task(name: str, *after: str, **said: Any) -> dict[str, Any]:
        return {
            "__type": "operator",
            "__var": {"task_id": name, "task_type": "Op", "downstream_task_ids": [*after], **said},
        }

    tasks = [
        task("a", "b", "c", retries=2, bash_command="make"),
        task("b", "d", execution_timeout=30.0),
        task("c", "d", _is_mapped=True),
        task("d", trigger_rule="one_done"),
    ]
    return {"__version": 2, "dag": {"dag_id": "etl", "fileloc": "x.py", "max_active_tasks": 7, "tasks": tasks}}


def test_a_serialized_dag_of_airflow():
    graph = read("airflow", json.dumps(serialized()))
    assert shape(graph) == {"a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c"}}
    document = graph.document
    assert (document.tasks["a"].reruns, document.tasks["b"].timing, document.max_in_flight) == (
        2,
        {"maxRunTime": 30.0},
        7,
    )
    assert payload(graph, "a") == {"commandLine": "make", "operator": "Op"}
    assert graph.notes == (
        "The trigger rule “one_done” is kept as `all-completed`.",
        "Mapped tasks are one task each: their number is known only when they run: “c”.",
    )
    bad = serialized()
    bad["dag"]["tasks"][0]["__var"]["downstream_task_ids"] = ["bb"]
    assert wrong("airflow", json.dumps(bad)) == [("unknown-label", None)]
    assert wrong("airflow", '{"dag": {}}') == [("missing", None), ("empty", None)]
    assert wrong("airflow", json.dumps(serialized()), goals=("other",)) == [("unknown-label", None)]


def test_a_drawing_of_airflow():
    text = (
        'digraph etl {\n\tgraph [label=etl labelloc=t rankdir=LR]\n\ta [color="#000" label=a shape=rectangle]\n'
        '\tsubgraph cluster_g {\n\t\tlabel=g\n\t\t"g.b" [label=b]\n\t}\n\ta -> "g.b"\n}\n'
    )
    graph = read("airflow", text)
    assert shape(graph) == {"a": set(), "g.b": {"a"}}
    assert graph.document.metadata == {"name": "etl"}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("/x/build.ninja.gz", "", "ninja"),
        ("/x/a.dag", "", "dagman"),
        ("/x/.github/workflows/ci.yaml", "", "github-actions"),
        ("/x/.gitlab-ci.yml", "", "gitlab-ci"),
        ("/x/Makefile", "", "make"),
        ("/x/full-task-graph.json", "", "taskgraph"),
        ("", "# GNU Make 4.3\n# Make data base, printed on today\n", "make"),
        ("", SNAKEMAKE, "snakemake"),
        ("x.yaml", ARGO, "argo"),
        ("x.yaml", "on: push\njobs: {}\n", "github-actions"),
        ("x.yaml", GITLAB := "stages: [a]\nb: {script: c}\n", "gitlab-ci"),
        ("x.py", AIRFLOW, "airflow"),
        ("x.json", json.dumps(serialized()), "airflow"),
        ("x.json", '{"schemaVersion": "1.5", "workflow": {}}', "wfformat"),
        ("x.json", '{"tasks": {}}', None),
        ("x.dot", "digraph g {}", None),
        ("", "", None),
    ],
)
def test_a_file_says_which_program_it_is_of(name: str, text: str, expected: str | None):
    assert guessed(name, text.encode()) == expected


def test_formats_are_the_same_at_every_door():
    assert tuple(FORMATS) == get_args(Format) == tuple(each.value for each in ImportFormat)


def test_goals_and_commands_are_for_the_formats_that_have_them():
    assert wrong("snakemake", SNAKEMAKE, goals=("all",)) == [("goal", None)]
    assert wrong("airflow", AIRFLOW, commands=True) == [("commands", None)]
    with pytest.raises(InvalidGraph):
        import_graph(b"\0", "ninja")
