"""Sign an address of the rows of one graph, for reading, until a time.

A grant is a shared access signature of the table service, for the partition of one graph. It is made from the account's
key and written nowhere, so grants can be neither listed nor taken back.
"""

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import parse_qs

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import over_http
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model.errors import InvalidInput, Refused

HOURS_DEFAULT: Final = 1.0
HOURS_MIN: Final = 0.1
"""Less than that, and the clocks of this machine and of the service may be further apart than it lasts."""
HOURS_MAX: Final = 7 * 24.0
"""A grant cannot be taken back by itself; a week is also how long a signature by identity may last."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What may be read until when: the partition of the graph, from now on. A secret: the url, or the token, is enough.

    url: of the table, with the token. token: the query of that address. link: of the page that shows it, "" where none
    was asked for. protocols: "https", or "https,http" where the store itself is reached without TLS. addresses: an IPv4
    address or a range of them from which it works, "" for any.
    """

    graph_id: str
    endpoint: str
    table: str
    expires: datetime
    protocols: str
    addresses: str
    url: str = field(repr=False)
    token: str = field(repr=False)
    link: str = field(default="", repr=False)


@over_http("grant")
async def read(app: App, graph_id: str, *, hours: float = HOURS_DEFAULT, addresses: str = "") -> Grant:
    """Grant the reading of one graph.

    Raises InvalidInput for hours or addresses that cannot be, Refused where there is no key to sign with, NotFound
    if there is no such graph.
    """
    if not HOURS_MIN <= hours <= HOURS_MAX:
        raise InvalidInput(f"{hours:g} hours: {HOURS_MIN:g} to {HOURS_MAX:g}")
    addresses = _checked(addresses)
    if app.sign is None:
        raise _refusal(app.settings)
    await app.queries.graph_row(graph_id)
    table = app.settings.prefix
    expires = (app.clock.now() + timedelta(hours=hours)).replace(microsecond=0)  # signed to the second
    token = app.sign(table, graph_id, expires, addresses)
    return Grant(
        graph_id=graph_id,
        endpoint=app.table_endpoint,
        table=table,
        expires=expires,
        protocols=parse_qs(token)["spr"][0],
        addresses=addresses,
        url=f"{app.table_endpoint}/{table}?{token}",
        token=token,
    )


def _refusal(settings: StoreSettings) -> Refused:
    if settings.embedded:
        return Refused(
            f"{settings.display} is a file of this machine, and nothing in it can be opened from elsewhere: "
            "hand on what `taskgraph rows ID --json` prints, or keep graphs in a storage account",
            "no-account",
        )
    if settings.connection_string:
        return Refused(
            "the connection string holds a signature and not the account's key, and a signature cannot be signed "
            "by another one: name the store by a connection string with AccountKey",
            "no-key",
        )
    return Refused(
        "the store is opened by an identity, and a signature for one graph needs the account's key: name the store "
        "by a connection string with AccountKey for this command, or assign the role Storage Table Data Reader on "
        f"the table {settings.prefix} to those who shall look, which opens every graph in it",
        "no-key",
    )


def _checked(addresses: str) -> str:
    """An IPv4 address, or two with a dash between them; the service knows no others."""
    if not addresses:
        return ""
    try:
        first, *more = [ipaddress.IPv4Address(each) for each in addresses.split("-")]
    except ValueError:
        more, first = [], None
    if first is None or len(more) > 1 or (more and more[0] < first):
        raise InvalidInput(f"“{addresses}” is no IPv4 address, and no range such as 203.0.113.1-203.0.113.9")
    return addresses
