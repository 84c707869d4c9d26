"""`taskgraph grant` over the emulator: what it opens, by the SDK, `az` and Node, and what it does not."""

import functools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, TableServiceClient, UpdateMode
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueClient

from taskgraph.model.ids import task_id_of
from taskgraph.storage.azure.signing import partition_signer
from tests.explorer import scene as scenes
from tests.explorer.clients import Node, az
from tests.explorer.scene import Scene

pytestmark = [pytest.mark.azurite, pytest.mark.campaign]

OWN: Final = f"PartitionKey eq '{scenes.GRAPH}'"
ROW: Final = {"PartitionKey": scenes.GRAPH, "RowKey": f"task:{task_id_of(scenes.GRAPH, 'build')}"}


@dataclass(frozen=True)
class Granted:
    """What the command said."""

    url: str
    words: str

    @property
    def token(self) -> str:
        return urlsplit(self.url).query

    def client(self, table: str = "") -> TableClient:
        """The SDK's client, as somebody makes it who has the address and nothing else."""
        if not table:
            return TableClient.from_table_url(self.url)
        place = self.url.partition("?")[0].rpartition("/")[0]
        return TableClient(place, table, credential=AzureSasCredential(self.token))


@pytest.fixture(scope="module")
def granted(scene: Scene) -> Granted:
    done = scene.run("grant", scenes.GRAPH, "--read", "--verbose", "--verbose")
    assert done.returncode == 0, done.stderr
    (url,) = done.stdout.splitlines()
    return Granted(url, done.stderr)


def refused(call: Callable[[], Any]) -> tuple[int | None, str]:
    """Status and code of a refusal of the service."""
    with pytest.raises(HttpResponseError) as raised:
        call()
    return raised.value.status_code, str(getattr(raised.value, "error_code", ""))


def rows_of(client: TableClient, condition: str = OWN) -> list[Any]:
    with client:
        return list(client.query_entities(condition))


def test_whoever_has_the_address_reads_the_whole_graph(scene: Scene, granted: Granted) -> None:
    with granted.client() as client:
        keys = {row["RowKey"] for row in client.query_entities(OWN)}
        assert client.get_entity(ROW["PartitionKey"], ROW["RowKey"])["label"] == "build"
    assert keys == {row["RowKey"] for row in scene.told("rows", scenes.GRAPH)["rows"]}


def test_az_and_node_read_by_the_token(scene: Scene, granted: Granted, node: Node) -> None:
    place = ["-t", scene.prefix, "--table-endpoint", scene.table_endpoint, "--sas-token", granted.token]
    build = f"{OWN} and label eq 'build'"
    entity = [*(f"{name}={value}" for name, value in ROW.items()), "note=mine"]
    words = [
        ["storage", "entity", "query", *place, "--filter", build, "--query", "items[].label", "-o", "tsv"],
        ["storage", "entity", "merge", *place, "-e", *entity],
    ]
    with ThreadPoolExecutor(2) as pool:
        read, write = pool.map(lambda each: az(each, scene.folder / "az"), words)
    assert (read.returncode, read.stdout) == (0, "build\n"), read.stderr
    assert write.returncode != 0
    asked = {"endpoint": scene.table_endpoint, "table": scene.prefix, "token": granted.token}
    assert [row["label"] for row in node.ask(**asked, filter=build)["rows"]] == ["build"]
    own = {"partitionKey": ROW["PartitionKey"], "rowKey": ROW["RowKey"], "note": "mine"}
    assert node.ask(**asked, merge=own)["refused"] == 403


def test_nothing_is_written_by_it(granted: Granted) -> None:
    with granted.client() as client:
        calls: list[Callable[[], Any]] = [
            lambda: client.create_entity({"PartitionKey": scenes.GRAPH, "RowKey": "note"}),
            lambda: client.update_entity({**ROW, "note": "mine"}, UpdateMode.MERGE),
            lambda: client.update_entity({**ROW, "note": "mine"}, UpdateMode.REPLACE),
            lambda: client.upsert_entity({**ROW, "note": "mine"}),
            lambda: client.delete_entity(partition_key=ROW["PartitionKey"], row_key=ROW["RowKey"]),
            lambda: client.delete_table(),
        ]
        assert [refused(call)[0] for call in calls] == [403] * len(calls)


def test_no_other_table_is_opened_by_it(scene: Scene, granted: Granted) -> None:
    other = f"{scene.prefix}other"
    with TableServiceClient.from_connection_string(scene.connection) as service:
        service.create_table(other).close()
        try:
            assert refused(lambda: rows_of(granted.client(other)))[0] == 403
            with TableServiceClient(scene.table_endpoint, credential=AzureSasCredential(granted.token)) as lister:
                assert refused(lambda: list(lister.list_tables()))[0] == 403
        finally:
            service.delete_table(other)


def test_no_queue_and_no_blob_are_opened_by_it(scene: Scene, granted: Granted) -> None:
    ends = dict(part.split("=", 1) for part in scene.connection.split(";") if part)
    credential = AzureSasCredential(granted.token)
    with QueueClient(ends["QueueEndpoint"], f"{scene.prefix}-events", credential=credential, retry_total=0) as queue:
        assert refused(lambda: queue.peek_messages())[0] == 403
        assert refused(lambda: queue.send_message("{}"))[0] == 403
    with BlobServiceClient(ends["BlobEndpoint"], credential=credential, retry_total=0) as blobs:
        container = blobs.get_container_client("taskgraph-logs")
        assert refused(lambda: next(iter(container.list_blobs())))[0] == 403


def test_another_partition_is_shut_by_the_service_and_not_by_the_emulator(scene: Scene, granted: Granted) -> None:
    """So the partition is held against the documented format instead (tests/unit/test_grants.py).

    Azurite looks at signature, right, table and time. If this fails, it has learned to look at partitions: then say so
    here and in docs/reference/explorer.md. What it does check is that the partition is signed: changed, a token is
    worth nothing.
    """
    listed = rows_of(granted.client(), "PartitionKey eq 'index:graphs'")
    assert [row["graph"] for row in listed] == [scenes.GRAPH]
    assert f"spk={scenes.GRAPH}&epk={scenes.GRAPH}" in granted.token
    wider = Granted(granted.url.replace(f"spk={scenes.GRAPH}", "spk=a"), "")
    assert refused(lambda: rows_of(wider.client()))[0] == 403
    longer = Granted(granted.url.replace(f"&epk={scenes.GRAPH}", ""), "")
    assert refused(lambda: rows_of(longer.client()))[0] == 403


def test_it_is_shut_when_it_has_ended(scene: Scene, granted: Granted) -> None:
    ends = dict(part.split("=", 1) for part in scene.connection.split(";") if part)
    key = AzureNamedKeyCredential(ends["AccountName"], ends["AccountKey"])
    sign = partition_signer(key, scene.table_endpoint)
    assert sign is not None
    now = datetime.now(UTC)
    place = granted.url.partition("?")[0]
    for hours, status in ((-1, 403), (1, 200)):
        token = sign(scene.prefix, scenes.GRAPH, now + timedelta(hours=hours), "")
        made = Granted(f"{place}?{token}", "")
        if status == 200:
            assert rows_of(made.client(), f"{OWN} and RowKey eq 'task-graph'")
        else:
            client = made.client()
            assert refused(functools.partial(rows_of, client))[0] == status
    told = datetime.fromisoformat(parse_qs(granted.token)["se"][0])
    assert told > now, "and this one has not"


# --- the command ---------------------------------------------------------------------------------------------------


def test_the_address_is_on_stdout_alone_even_when_everything_is_said(granted: Granted) -> None:
    signature = parse_qs(granted.token)["sig"][0]
    for secret in (granted.url, granted.token, signature, granted.token.rpartition("sig=")[2]):
        assert secret not in granted.words
    for words in ("for reading, and nothing else", "payloads too", "renewing the account's key", "without TLS"):
        assert words in granted.words


def test_json_has_all_of_it(scene: Scene) -> None:
    done = scene.run("grant", scenes.GRAPH, "--read", "--hours", "24", "--ip", "127.0.0.1", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["url"] == f"{scene.table_endpoint}/{scene.prefix}?{told['token']}"
    assert {name: told[name] for name in ("graphId", "table", "partition", "permissions", "starts", "addresses")} == {
        "graphId": scenes.GRAPH,
        "table": scene.prefix,
        "partition": scenes.GRAPH,
        "permissions": "read",
        "starts": None,
        "addresses": "127.0.0.1",
    }
    left = datetime.fromisoformat(told["expires"]) - datetime.now(UTC)
    assert timedelta(hours=23.9) < left <= timedelta(hours=24)
    assert "sig=" not in done.stderr
    assert rows_of(Granted(told["url"], "").client(), f"{OWN} and RowKey eq 'task-graph'"), "addresses are signed well"


def test_a_graph_that_is_not_there_is_named_with_its_neighbours(scene: Scene) -> None:
    done = scene.run("grant", "nightli", "--read")
    assert (done.returncode, done.stdout) == (3, "")
    assert "did you mean “nightly”?" in done.stderr
