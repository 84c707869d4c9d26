"""Options and arguments that several commands share."""

from typing import Annotated, Final

import typer

from taskgraph.interfaces.cli import completion
from taskgraph.model import limits
from taskgraph.model.priorities import LEVELS

LOG_FORMAT_VARIABLE: Final = "TASKGRAPH_LOG_FORMAT"

IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        autocompletion=completion.graph_ids,
        help="The id of the graph; a fresh one with its name otherwise.",
    ),
]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        "--slots", min=1, metavar="N", help="Tasks that run side by side; the processors, and at least 2, otherwise."
    ),
]
LeaseOption = Annotated[
    float,
    typer.Option(
        "--lease-seconds",
        min=1,
        max=limits.DELAY_SECONDS_MAX,
        metavar="SECONDS",
        help="How long a task is this worker's without a sign of life.",
    ),
]
GraceOption = Annotated[
    float,
    typer.Option(
        "--grace-seconds",
        min=0,
        max=3600,
        metavar="SECONDS",
        help="How long a command may take to end after SIGTERM, when it is stopped; then SIGKILL.",
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="STORE",
        help="Where graphs live: sqlite:///PATH, a storage connection string, or https://ACCOUNT, which stands for "
        "the account's tables, or https://HOST/api of a server (TASKGRAPH_TOKEN opens it). Otherwise TASKGRAPH_STORE, "
        "then AzureWebJobsStorage, then .taskgraph/taskgraph.db here.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with stable keys: see schemas/answers.json.")]
VerboseOption = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, help="Say more on stderr; twice for every step.", metavar="", show_default=False
    ),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        metavar="text|json",
        help="json: what goes to stderr is lines of JSON, one of them for each handled message. "
        "Otherwise TASKGRAPH_LOG_FORMAT, then text.",
    ),
]
_GRAPH: Final = "The id of the graph, the beginning of one, or @last."
GraphArgument = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.graph_ids, help=_GRAPH)]
OptionalGraphArgument = Annotated[
    str | None, typer.Argument(metavar="ID", autocompletion=completion.graph_ids, help=_GRAPH)
]
GraphFileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The graph: YAML, JSON or TOML; - for standard input.")
]
LabelsArgument = Annotated[
    list[str], typer.Argument(metavar="LABEL...", autocompletion=completion.labels, help="Tasks, by label or taskId.")
]
OptionalLabelsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LABEL]...", autocompletion=completion.labels, help="Only these tasks, by label or taskId."
    ),
]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="NAME", help="Only the tasks of this group.")]
PartOption = Annotated[str, typer.Option("--group", metavar="NAME", help="Only the tasks of this group.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the journal.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it is so.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop waiting after so long, with exit code 124."),
]
PlanOption = Annotated[bool, typer.Option("--plan", help="Only show what would change; nothing is written.")]
ApplyOption = Annotated[
    str | None,
    typer.Option(
        "--apply",
        metavar="DIGEST",
        help="Make just what --plan showed, and wait for that. It is refused, with the new plan, if anything that the "
        "plan names has moved.",
    ),
]
PatienceOption = Annotated[
    float, typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop waiting after so long.")
]
PriorityOption = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="LEVEL",
        help=f"The priority of tasks that name none: {', '.join(LEVELS)}. The document's own otherwise.",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="The value of a parameter: NAME=TEXT, read as JSON where the parameter is declared to be no string; or "
        "NAME:=JSON. May be given several times. Values are kept as plain text.",
    ),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse what is only warned of: legal, and probably a mistake.")
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        autocompletion=completion.targets,
        help="Take work for this target; may be given several times.",
    ),
]
WorkerLabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="LABEL", help="Take tasks that ask for this label of a worker; may be given several times."
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="NAME", help="Take tasks for the host of this name too; . for the name of this machine."
    ),
]
ExecutorOption = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="NAME",
        help="Run every task by this executor (noop, sleep, command, python), whatever it asks for.",
    ),
]
TimeScaleOption = Annotated[
    float,
    typer.Option(
        "--time-scale",
        min=0,
        metavar="X",
        help="Sleep tasks take so much of their time: 0.001 rehearses an hour in 3.6 s.",
    ),
]
PythonOption = Annotated[
    list[str] | None,
    typer.Option(
        "--python",
        metavar="MODULE",
        help="Make the callables of MODULE, or MODULE:ATTRIBUTE, known to python tasks; may be given several times.",
    ),
]
PassOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pass-env",
        metavar="NAME",
        help="Let commands see this variable, a secret too; may be given several times. Otherwise TASKGRAPH_PASS_ENV.",
    ),
]
WithStoreOption = Annotated[
    bool,
    typer.Option(
        "--with-store",
        help="Hand the key of the store on to commands, so that they can call taskgraph extend: any of them "
        "may then do anything to the store. Otherwise TASKGRAPH_WITH_STORE.",
    ),
]
CwdOption = Annotated[
    str | None,
    typer.Option(
        "--cwd",
        metavar="DIR",
        help="Start commands in this folder, or in that which their graph was submitted in: submitter. cwd of a task "
        "begins there. The present folder otherwise.",
    ),
]
SecretsOption = Annotated[
    str | None,
    typer.Option(
        "--secrets",
        metavar="PLACE",
        help="Where secrets are that tasks ask for: a folder with a file for each, or the address of an Azure Key "
        "Vault. Otherwise TASKGRAPH_SECRETS.",
    ),
]
InheritOption = Annotated[
    bool,
    typer.Option(
        "--inherit-env",
        help="On a shared store, too, let commands have the whole environment but its secrets where their task does "
        "not say inheritEnv. Otherwise TASKGRAPH_INHERIT_ENV.",
    ),
]
