"""What lets others in: `grant`, an address by which one graph can be read, `token`, for the HTTP API, and `web deploy`.

Either goes to stdout alone; no line on stderr and no log repeats the signature in it.
"""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion
from taskgraph.interfaces.cli.common import Session, check_graph_id, command
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import Column, count, moment
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.grant import Grant
    from taskgraph.interfaces.operations.site import Deployed
    from taskgraph.interfaces.operations.tokens import Token

_HOURS_DEFAULT: Final = 1.0  # as in the operation, which is not imported for a page of help
_HOURS_RANGE: Final = "0.1 to 168"
_ROLES: Final = ("reader", "submitter", "operator", "admin", "worker")  # as in model.roles, which help does not need
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name: 1 to 64 letters, digits, - and _.")]


@command(
    "taskgraph grant nightly-2026-08-01 --read",
    "taskgraph grant nightly-2026-08-01 --read --hours 24 --ip 203.0.113.7",
    "taskgraph grant nightly-2026-08-01 --read --link",
    "taskgraph grant nightly-2026-08-01 --read --link --logs --hours 8",
    "taskgraph grant nightly-2026-08-01 --read --link --changes",
    "taskgraph grant nightly-2026-08-01 --read --link --page https://graphs.example.org/",
    "taskgraph grant nightly-2026-08-01 --read --json",
)
def grant(
    session: Session,
    graph_id: GraphArgument,
    read: Annotated[
        bool, typer.Option("--read", help="The right to read: the only one there is, and it must be said.")
    ] = False,
    hours: Annotated[
        float, typer.Option("--hours", metavar="N", help=f"For how long, {_HOURS_RANGE}.")
    ] = _HOURS_DEFAULT,
    addresses: Annotated[
        str, typer.Option("--ip", metavar="ADDRESS", help="Only from this IPv4 address, or range A-B of them.")
    ] = "",
    link: Annotated[
        bool,
        typer.Option("--link", help="Print an address of the page that shows the graph, in place of that of rows."),
    ] = False,
    logs: Annotated[
        bool,
        typer.Option(
            "--logs",
            help="With --link: it opens the output of runs too: of any graph, for who knows the ids of its tasks.",
        ),
    ] = False,
    changes: Annotated[
        bool,
        typer.Option(
            "--changes",
            help="With --link: changes of the graph may be asked for by it, edits of what it runs too: it is a "
            "credential of an operator.",
        ),
    ] = False,
    page: Annotated[
        str,
        typer.Option("--page", metavar="URL", help="With --link: where the page is, if not where web deploy put it."),
    ] = "",
) -> None:
    """Print an address that gives read access to the rows of one graph, and nothing else, for some hours.

    It works in Storage Explorer, az and the SDKs, without an account and without taskgraph; with --link in a browser,
    which asks no server of ours. It needs a store with the account's key. The address opens payloads too, and cannot
    be taken back.
    """
    check_graph_id(graph_id)
    if (logs or page or changes) and not link:
        raise InvalidInput("--logs, --changes and --page are for --link")
    if not read:
        raise InvalidInput("say --read: it is the only right that can be granted, and must not be granted by mistake")

    async def granted(app: "App", graph_id: str) -> "Grant":
        from taskgraph.interfaces.operations import grant, site

        found = await grant.read(app, graph_id, hours=hours, addresses=addresses)
        return await site.link(app, found, page=page, files=logs, changes=changes) if link else found

    _, found = session.open_graph(graph_id, granted)
    if session.answered(views.grant, found):
        return
    session.output.data(found.link or found.url)
    _explain(session, found, with_tools=not link, only_reads=not changes)
    if changes:
        session.output.say("and changes of it may be asked for, edits of what it runs too: give it to operators alone")
    if logs:
        session.output.say("and the output of runs, also of other graphs for who knows the ids of their tasks")


def _explain(session: Session, found: "Grant", *, with_tools: bool = True, only_reads: bool = True) -> None:
    output = session.output
    place = f"partition {found.graph_id} of table {found.table}"
    where = f", from {found.addresses}" if found.addresses else ""
    until = moment(found.expires)
    only = ", and nothing else" if only_reads else ""
    output.say(f"opens graph {found.graph_id} for reading{only}: {place}, until {until}{where}")
    output.say("the address opens all of its rows to anyone, payloads too; it cannot be taken back before then")
    output.say("but by renewing the account's key, which shuts out everybody who works with that key")
    if "http" in found.protocols.split(","):
        output.warn("this store is spoken to without TLS, so the address is too; an emulator may open the whole table")
    if not with_tools:
        return
    keys = f"PartitionKey eq '{found.graph_id}'"
    output.hint("Storage Explorer: connect to a table, by shared access signature URL: the address as it is")
    output.hint(f"az: az storage entity query -t {found.table} --table-endpoint {found.endpoint} \\")
    output.hint(f'      --sas-token "${{address#*\\?}}" --filter "{keys}"')
    output.hint(f'Python: TableClient.from_table_url(address).query_entities("{keys}")')
    insecure = ", { allowInsecureConnection: true }" if found.endpoint.startswith("http:") else ""
    output.hint(f'Node: new TableClient("{found.endpoint}", "{found.table}", new AzureSASCredential(token){insecure})')
    output.hint(
        f'        .listEntities({{ queryOptions: {{ filter: "{keys}" }} }}), where token is what stands after the ?'
    )


@command(
    "taskgraph token create dashboard --role reader --days 90",
    "taskgraph token create ci --role submitter --graphs 'nightly-*' --graphs 'release-*'",
    "taskgraph token create gpu-box --role worker --targets 'gpu-*'",
    "TOKEN=$(taskgraph token create ops --role operator)",
    "taskgraph token create decision --role submitter --hawk",
)
def create(
    session: Session,
    name: NameArgument,
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="ROLE",
            autocompletion=completion.one_of(_ROLES),
            help=f"What it may do: {', '.join(_ROLES)}. Each of the first four includes those before it.",
        ),
    ],
    graphs: Annotated[
        list[str] | None,
        typer.Option(
            "--graphs",
            metavar="PATTERN",
            help="Only for graphs whose id is this, or fits it with * and ?; may be repeated. It sees nothing of the "
            "store beside them.",
        ),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--targets",
            metavar="PATTERN",
            help="With --role worker: only tasks of targets that fit this with * and ?; may be repeated.",
        ),
    ] = None,
    days: Annotated[float | None, typer.Option("--days", metavar="DAYS", help="It ends after so long.")] = None,
    hawk: Annotated[
        bool,
        typer.Option(
            "--hawk", help="Old TaskCluster clients may sign with it (serve --taskcluster): the store keeps it whole."
        ),
    ] = False,
) -> None:
    """Make a token for the HTTP API (taskgraph serve --http), and print it.

    It is shown this once: the store keeps a hash of it. A program sends it as `Authorization: Bearer TOKEN`.
    """
    if role not in _ROLES:
        raise InvalidInput(f"--role “{role}” is none: write one of {', '.join(_ROLES)}")

    async def made(app: "App") -> "tuple[Token, str]":
        from taskgraph.interfaces.operations import tokens
        from taskgraph.model.roles import Role

        return await tokens.create(
            app, name, Role(role), graphs=graphs or (), targets=targets or (), days=days, hawk=hawk
        )

    found, text = session.open(made)
    if session.answered(views.token, found, text):
        return
    session.output.data(text)
    ends = f"until {moment(found.until)}" if found.until else "until it is revoked"
    whose = f" of {', '.join((*found.graphs, *found.targets))}" if found.graphs or found.targets else ""
    session.output.say(f"token {name}: {role}{whose}, {ends}; it is not shown again")


@command(
    "taskgraph token share nightly-2026-08-01",
    "taskgraph token share nightly-2026-08-01 --hours 2 --json",
)
def share(
    session: Session,
    graph_id: GraphArgument,
    hours: Annotated[float, typer.Option("--hours", metavar="N", help="For so long, 720 at most.")] = 24.0,
) -> None:
    """Print a token that reads one graph over HTTP, and no other, for some hours.

    It is kept nowhere, so that it is neither listed nor taken back by itself: `taskgraph token revoke shares` ends all
    of them at once.
    """
    check_graph_id(graph_id)

    async def shared(app: "App", graph_id: str) -> "tuple[Token, str]":
        from taskgraph.interfaces.operations import shares

        return await shares.share(app, graph_id, hours=hours)

    _, (found, text) = session.open_graph(graph_id, shared)
    if session.answered(views.token, found, text):
        return
    session.output.data(text)
    session.output.say(f"opens graph {found.graphs[0]} for reading, and nothing else, until {moment(found.until)}")


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
                Column(
                    "GRAPHS",
                    lambda one: ", ".join(one.graphs) or ("one each" if one.name == "shares" else "all"),
                    flexible=True,
                ),
                Column("TARGETS", lambda one: ", ".join(one.targets) or "all", flexible=True),
                Column("CREATED", lambda one: moment(one.created)),
                Column("UNTIL", lambda one: moment(one.until) if one.until else "it is revoked"),
                Column("BY", lambda one: one.by, flexible=True),
            ],
        )
    else:
        session.output.say("there are no tokens: the HTTP API is closed")
        session.output.hint(f"taskgraph token create NAME --role reader{session.store_words}")


@command("taskgraph token revoke dashboard", "taskgraph token revoke shares")
def revoke(session: Session, name: NameArgument) -> None:
    """Take a token back, or with `shares` all that `token share` made.

    Servers that have seen it lately let it in for ten seconds more.
    """

    async def revoked(app: "App") -> "Token":
        from taskgraph.interfaces.operations import tokens

        return await tokens.revoke(app, name)

    found = session.open(revoked)
    if session.answered(views.token, found):
        return
    session.output.data(found.name)
    session.output.say(f"token {found.name} opens nothing any more")


@command(
    "taskgraph web deploy --site https://ACCOUNT.z6.web.core.windows.net",
    "taskgraph web deploy",
    "taskgraph web deploy --json",
    "taskgraph web deploy --remove",
)
def deploy(
    session: Session,
    site: Annotated[
        str,
        typer.Option(
            "--site",
            metavar="URL",
            help="The address of the account's website, or your own name for it; said once, it is kept there.",
        ),
    ] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Take it all away again.")] = False,
) -> None:
    """Put the page into the storage account, as its static website, and let browsers read rows from there.

    The files hold code and no data. What they show is opened by a link: taskgraph grant ID --read --link. It adds one
    CORS rule for tables and one for blobs, for reading, and leaves those of others. Run again it changes what is other.
    """
    if remove and site:
        raise InvalidInput("--remove takes away what was put there, and needs no --site")

    async def put(app: "App") -> "Deployed":
        from taskgraph.interfaces.operations import site as sites
        from taskgraph.interfaces.web import alone

        return await (sites.remove(app) if remove else sites.deploy(app, alone.files, site))

    done = session.open(put)
    if session.answered(views.fields_of, done):
        return
    changed = [f"{count(len(done.uploaded), 'file')} put there"] if done.uploaded else []
    changed += [f"{count(len(done.removed), 'file')} taken away"] if done.removed else []
    changed += [f"CORS of {' and '.join(done.services)} service"] if done.services else []
    changed += [f"website switched {'off' if remove else 'on'}"] if done.turned else []
    if done.address:
        session.output.data(done.address)
    session.output.say(", ".join(changed) or "all was as it is: nothing changed")
    if not remove:
        session.output.hint(f"taskgraph grant ID --read --link{session.store_words}")
