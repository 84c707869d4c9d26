"""What is signed when somebody may look at a graph: every field, by the format that the table service documents."""

import base64
import functools
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import pytest
from typer.testing import CliRunner

from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.cli import app as command_line
from taskgraph.interfaces.cli import grant as command
from taskgraph.interfaces.cli.common import Session
from taskgraph.interfaces.operations import grant as operation
from taskgraph.interfaces.operations.grant import HOURS_DEFAULT, HOURS_MAX, HOURS_MIN, Grant
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.errors import InvalidInput, NotFound, Refused
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL, LIVE
from taskgraph.queries.graphs import Queries
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.tables import Insert
from taskgraph.testing import ManualClock
from tests.scenarios.stage import memory_stage

ACCOUNT = "myaccount"
KEY = base64.b64encode(bytes(range(64))).decode()
KEYED = f"DefaultEndpointsProtocol=https;AccountName={ACCOUNT};AccountKey={KEY};EndpointSuffix=core.windows.net"
PLAIN = f"AccountName={ACCOUNT};AccountKey={KEY};" + "".join(
    f"{kind}Endpoint=http://127.0.0.1:1000{number}/{ACCOUNT};" for number, kind in enumerate(("Blob", "Queue", "Table"))
)
SIGNED = "TableEndpoint=https://a.table.core.windows.net;QueueEndpoint=https://a.queue.core.windows.net;"
SIGNED += "BlobEndpoint=https://a.blob.core.windows.net;SharedAccessSignature=sv=2019-02-02&sig=abc"
PREFIX = "Nightlies"  # with a capital letter: the service signs the small ones


def documented_signature(fields: dict[str, str], account: str, key: str) -> str:
    """The signature over the fields of a token, as the service documents the string to sign for a table."""
    lines = [
        fields["sp"],
        fields.get("st", ""),
        fields["se"],
        f"/table/{account}/{fields['tn'].lower()}",
        fields.get("si", ""),
        fields.get("sip", ""),
        fields.get("spr", ""),
        fields["sv"],
        fields.get("spk", ""),
        fields.get("srk", ""),
        fields.get("epk", ""),
        fields.get("erk", ""),
    ]
    digest = hmac.new(base64.b64decode(key), "\n".join(lines).encode("utf-8"), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


async def queries_over(graph_id: str) -> tuple[Queries, ManualClock]:
    stage = memory_stage()
    await stage.tables.commit(graph_id, [Insert(GRAPH, {"schema": 1, "state": "running"})])
    await stage.tables.commit(ALL, [Insert(f"1:{graph_id}", {"graph": graph_id})])
    return stage.queries, stage.clock


async def grants_of(
    connection: str, graph_id: str = "nightly-7"
) -> tuple[Callable[..., Awaitable[Grant]], ManualClock]:
    queries, clock = await queries_over(graph_id)
    store = AzureStore.from_connection_string(connection, clock)
    settings = StoreSettings(connection_string=connection, prefix=PREFIX)
    parts = SimpleNamespace(
        queries=queries,
        clock=clock,
        settings=settings,
        table_endpoint=store.table_endpoint,
        sign=store.partition_signer(),
        server=None,
    )
    return functools.partial(operation.read, cast(App, parts)), clock


@pytest.mark.parametrize(("connection", "protocols"), [(KEYED, "https"), (PLAIN, "https,http")])
@pytest.mark.parametrize("addresses", ["", "203.0.113.7", "203.0.113.1-203.0.113.9"])
@pytest.mark.parametrize("graph_id", ["nightly-7", "-_AZaz09", "x" * 64])
async def test_a_token_opens_one_partition_for_reading_and_nothing_else(
    connection: str, protocols: str, addresses: str, graph_id: str
) -> None:
    read, clock = await grants_of(connection, graph_id)
    made = await read(graph_id, hours=1.5, addresses=addresses)
    ends = (clock.now() + timedelta(hours=1.5)).replace(microsecond=0)
    fields = dict(parse_qsl(made.token, strict_parsing=True))
    signature = fields.pop("sig")
    expected = {
        "sv": "2019-02-02",
        "tn": PREFIX,
        "sp": "r",
        "se": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "spr": protocols,
        "spk": graph_id,
        "epk": graph_id,
    }
    # No start (st), no range of row keys (srk, erk), no stored policy (si), and no field that nobody knows.
    assert fields == {**expected, **({"sip": addresses} if addresses else {})}
    assert signature == documented_signature(fields, ACCOUNT, KEY)
    for name in fields:
        assert signature != documented_signature({**fields, name: fields[name] + "x"}, ACCOUNT, KEY), (
            f"{name} is signed"
        )
    assert (made.expires, made.graph_id) == (ends, graph_id)
    place = urlsplit(made.url)
    assert made.url == f"{made.endpoint}/{PREFIX}?{made.token}"
    assert place.scheme == protocols.partition(",")[0] or place.scheme == "http"
    assert made.token not in repr(made)
    assert signature not in unquote(repr(made))


def test_signatures_for_changes_add_requests_of_the_graph_and_its_name_to_the_index_and_nothing_else() -> None:
    clock = ManualClock()
    sign = AzureStore.from_connection_string(KEYED, clock).changes_signer()
    assert sign is not None
    ranges = (("nightly-7", "request:", "request;"), (LIVE, "nightly-7", "nightly-7"))
    for token, (partition, first, last) in zip(sign(PREFIX, "nightly-7", clock.now(), ""), ranges, strict=True):
        fields = dict(parse_qsl(token, strict_parsing=True))
        signature = fields.pop("sig")
        bounds = {"spk": partition, "srk": first, "epk": partition, "erk": last}
        assert {name: fields[name] for name in ("sp", "tn", *bounds)} == {"sp": "a", "tn": PREFIX, **bounds}
        assert signature == documented_signature(fields, ACCOUNT, KEY)


async def test_the_end_is_in_utc_and_to_the_second() -> None:
    read, clock = await grants_of(KEYED)
    clock.advance(0.75)
    made = await read("nightly-7")
    assert (made.expires.tzinfo, made.expires.microsecond) == (UTC, 0)
    assert made.expires <= clock.now() + timedelta(hours=HOURS_DEFAULT)
    assert datetime.fromisoformat(parse_qs(made.token)["se"][0]) == made.expires


@pytest.mark.parametrize("hours", [0, -1, HOURS_MIN / 2, HOURS_MAX + 1, float("nan"), float("inf")])
async def test_hours_are_bounded(hours: float) -> None:
    read, _ = await grants_of(KEYED)
    with pytest.raises(InvalidInput, match=r"0\.1 to 168"):
        await read("nightly-7", hours=hours)


@pytest.mark.parametrize("hours", [HOURS_MIN, HOURS_MAX])
async def test_the_bounds_themselves_may_be_asked_for(hours: float) -> None:
    read, clock = await grants_of(KEYED)
    assert (await read("nightly-7", hours=hours)).expires > clock.now()


@pytest.mark.parametrize(
    "addresses",
    ["1.2.3", "::1", "1.2.3.4-", "-1.2.3.4", "1.2.3.9-1.2.3.4", "1.2.3.4-1.2.3.5-1.2.3.6", "1.2.3.4/24", " "],
)
async def test_addresses_are_ones_that_the_service_knows(addresses: str) -> None:
    read, _ = await grants_of(KEYED)
    with pytest.raises(InvalidInput, match="IPv4"):
        await read("nightly-7", addresses=addresses)


async def test_a_graph_that_is_not_there_is_not_granted() -> None:
    read, _ = await grants_of(KEYED)
    with pytest.raises(NotFound, match="there is no graph nightly-8"):
        await read("nightly-8")


async def test_a_signature_signs_no_other_one() -> None:
    read, _ = await grants_of(SIGNED)
    with pytest.raises(Refused, match="AccountKey") as raised:
        await read("nightly-7")
    assert raised.value.code == "no-key"
    assert "sig=abc" not in str(raised.value)


async def test_an_identity_has_nothing_to_sign_with() -> None:
    settings = read_settings("https://myaccount.table.core.windows.net", {}, cwd=Path())
    async with open_app(settings) as opened:
        with pytest.raises(Refused, match="Storage Table Data Reader on the table taskgraph") as raised:
            await operation.read(opened, "nightly-7")  # refused before anybody is asked for a token
    assert raised.value.code == "no-key"


async def test_a_file_has_no_address(tmp_path: Path) -> None:
    async with open_app(read_settings(f"sqlite:///{tmp_path}/store.db", {}, cwd=tmp_path)) as opened:
        with pytest.raises(Refused, match="taskgraph rows ID --json") as raised:
            await operation.read(opened, "nightly-7")
    assert raised.value.code == "no-account"
    assert list(tmp_path.iterdir()) == [], "nothing was opened for it"


# --- the command ---------------------------------------------------------------------------------------------------


async def test_no_word_repeats_the_signature(capsys: pytest.CaptureFixture[str]) -> None:
    """The command itself is tested where it has a store: tests/explorer/test_grant.py."""
    for connection in (KEYED, PLAIN):
        made = await (await grants_of(connection))[0]("nightly-7", addresses="203.0.113.7")
        command._explain(Session(), made)
        told = capsys.readouterr()
        assert told.out == ""
        for secret in (made.url, made.token, parse_qs(made.token)["sig"][0], made.token.rpartition("sig=")[2], KEY):
            assert secret not in told.err
        assert "partition nightly-7 of table Nightlies" in told.err
        assert "from 203.0.113.7" in told.err
        for client in (
            "Storage Explorer",
            "az storage entity query",
            "TableClient.from_table_url",
            "AzureSASCredential",
        ):
            assert client in told.err
        assert ("without TLS" in told.err) == (connection == PLAIN)
        assert ("allowInsecureConnection" in told.err) == (connection == PLAIN)


def test_without_its_right_nothing_is_granted(tmp_path: Path) -> None:
    """Said before any store is opened, and so are other words that cannot be."""
    for words in (["nightly-7"], ["no graph!", "--read"]):
        done = CliRunner().invoke(command_line, ["--store", f"sqlite:///{tmp_path}/store.db", "grant", *words])
        assert (done.exit_code, done.stdout) == (2, "")
        assert ("say --read" if len(words) == 1 else "cannot be the id") in done.stderr


def test_what_the_page_of_help_says_is_what_holds() -> None:
    assert command._HOURS_DEFAULT == HOURS_DEFAULT
    assert f"{HOURS_MIN:g} to {HOURS_MAX:g}" == command._HOURS_RANGE
