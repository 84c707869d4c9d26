"""The command `grant`: an address by which one graph can be read, and nothing else, until a time.

The address goes to stdout alone; no line on stderr and no log repeats the signature in it.
"""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, check_graph_id, command
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import moment
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.grant import Grant

_HOURS_DEFAULT: Final = 1.0  # as in the operation, which is not imported for a page of help
_HOURS_RANGE: Final = "0.1 to 168"


@command(
    "taskgraph grant nightly-2026-08-01 --read",
    "taskgraph grant nightly-2026-08-01 --read --hours 24 --ip 203.0.113.7",
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
) -> None:
    """Print an address that gives read access to the rows of one graph, and nothing else, for some hours.

    It works in Storage Explorer, az and the SDKs, without an account and without taskgraph. It needs a store with the
    account's key. The address opens payloads too, and cannot be taken back.
    """
    check_graph_id(graph_id)
    if not read:
        raise InvalidInput("say --read: it is the only right that can be granted, and must not be granted by mistake")

    async def granted(app: "App", graph_id: str) -> "Grant":
        from taskgraph.interfaces.operations import grant

        return await grant.read(app, graph_id, hours=hours, addresses=addresses)

    _, found = session.open_graph(graph_id, granted)
    if session.answered(views.grant, found):
        return
    session.output.data(found.url)
    _explain(session, found)


def _explain(session: Session, found: "Grant") -> None:
    output = session.output
    place = f"partition {found.graph_id} of table {found.table}"
    where = f", from {found.addresses}" if found.addresses else ""
    until = moment(found.expires)
    output.say(f"opens graph {found.graph_id} for reading, and nothing else: {place}, until {until}{where}")
    output.say("the address opens all of its rows to anyone, payloads too; it cannot be taken back before then")
    output.say("but by renewing the account's key, which shuts out everybody who works with that key")
    if "http" in found.protocols.split(","):
        output.warn("this store is spoken to without TLS, so the address is too; an emulator may open the whole table")
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
