"""The commands `token create`, `token list` and `token revoke`: what opens the HTTP API of a store."""

from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.output import Column, moment
from taskgraph.interfaces.operations.tokens import Role

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.tokens import Token

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name: 1 to 64 letters, digits, - and _.")]


@command(
    "taskgraph token create dashboard --role reader --days 90",
    "taskgraph token create ci --role submitter --graphs 'nightly-*' --graphs 'release-*'",
    "TOKEN=$(taskgraph token create ops --role operator)",
)
def create(
    session: Session,
    name: NameArgument,
    role: Annotated[Role, typer.Option("--role", help="What it may do; operator includes submitter, and so on.")],
    graphs: Annotated[
        list[str] | None,
        typer.Option(
            "--graphs",
            metavar="PATTERN",
            help="Only for graphs whose id is this, or fits it with * and ?; may be repeated. It sees nothing of the "
            "store beside them.",
        ),
    ] = None,
    days: Annotated[float | None, typer.Option("--days", metavar="DAYS", help="It ends after so long.")] = None,
) -> None:
    """Make a token for the HTTP API (taskgraph serve --http), and print it.

    It is shown this once: the store keeps a hash of it. A program sends it as `Authorization: Bearer TOKEN`.
    """

    async def made(app: "App") -> "tuple[Token, str]":
        from taskgraph.interfaces.operations import tokens

        return await tokens.create(app, name, role, graphs=graphs or (), days=days)

    found, text = session.open(made)
    if session.answered(views.token, found, text):
        return
    session.output.data(text)
    ends = f"until {moment(found.until)}" if found.until else "until it is revoked"
    whose = f" of {', '.join(found.graphs)}" if found.graphs else ""
    session.output.say(f"token {name}: {role}{whose}, {ends}; it is not shown again")


@command("taskgraph token list", "taskgraph token list --json")
def list_(session: Session) -> None:
    """List the tokens of a store, also those that have ended. What they are is kept nowhere."""

    async def listed(app: "App") -> "list[Token]":
        from taskgraph.interfaces.operations import tokens

        return await tokens.listed(app)

    found = session.open(listed)
    if session.answered(views.tokens, found):
        return
    if found:
        session.output.table(
            found,
            [
                Column("NAME", lambda one: one.name),
                Column("ROLE", lambda one: str(one.role)),
                Column("GRAPHS", lambda one: ", ".join(one.graphs) or "all", flexible=True),
                Column("CREATED", lambda one: moment(one.created)),
                Column("UNTIL", lambda one: moment(one.until) if one.until else "it is revoked"),
                Column("BY", lambda one: one.by, flexible=True),
            ],
        )
    else:
        session.output.say("there are no tokens: the HTTP API is closed")
        session.output.hint(f"taskgraph token create NAME --role reader{session.store_words}")


@command("taskgraph token revoke dashboard")
def revoke(session: Session, name: NameArgument) -> None:
    """Take a token back. Servers that have seen it lately let it in for ten seconds more."""

    async def revoked(app: "App") -> "Token":
        from taskgraph.interfaces.operations import tokens

        return await tokens.revoke(app, name)

    found = session.open(revoked)
    if session.answered(views.token, found):
        return
    session.output.data(found.name)
    session.output.say(f"token {found.name} opens nothing any more")
