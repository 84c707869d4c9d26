"""Options and arguments that several commands share."""

from typing import Annotated

import typer

from taskgraph.model import limits

IdOption = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="The id of the graph; a fresh one otherwise.", show_default=False),
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
