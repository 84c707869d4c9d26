"""`web deploy` at the emulator: what lies there afterwards, what of others stays, and how it is taken away."""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.data.tables import TableCorsRule, TableServiceClient
from azure.storage.blob import BlobServiceClient, CorsRule
from typer.testing import CliRunner

from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.web import carried, files
from taskgraph.model import schemas

_SITE: Final = "https://site.example.org"
_THEIRS: Final = "https://theirs.example.org"
_MORE: Final = {"allowed_headers": ["x-ms-*"], "exposed_headers": ["etag"], "max_age_in_seconds": 60}

pytestmark = pytest.mark.azurite


def typed(*words: str) -> Any:
    """In another thread: the browser of other tests has the event loop of this one."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(CliRunner().invoke, commands, words).result()


@pytest.fixture
def deployed(account: str) -> Iterator[Any]:
    """Types `web deploy` with these words, and gives its answer; what it put there is taken away in the end."""

    def deploy(*words: str, code: int = 0) -> Any:
        done = typed("web", "deploy", "--json", "--store", account, *words)
        assert done.exit_code == code, done.stderr
        answer = json.loads(done.stdout)
        assert [each.message for each in schemas.validator("answers", "#web-deploy").iter_errors(answer)] == []
        return answer

    yield deploy
    deploy("--remove")


@pytest.fixture
def blobs(account: str) -> Iterator[BlobServiceClient]:
    with BlobServiceClient.from_connection_string(account) as made:
        yield made
        made.set_service_properties(cors=[])


@pytest.fixture
def tables(account: str) -> Iterator[TableServiceClient]:
    with TableServiceClient.from_connection_string(account) as made:
        yield made
        made.set_service_properties(cors=[])


def origins(service: Any) -> list[str]:
    found = (each.allowed_origins for each in service.get_service_properties()["cors"] or ())
    return [each if isinstance(each, str) else ",".join(each) for each in found]


def test_the_page_lies_there_and_browsers_may_read_from_it(
    deployed: Any, blobs: BlobServiceClient, tables: TableServiceClient
) -> None:
    tables.set_service_properties(cors=[TableCorsRule([_THEIRS], ["PUT"], **_MORE)])
    blobs.set_service_properties(cors=[CorsRule([_THEIRS], ["PUT"], **_MORE)])
    first = deployed("--site", _SITE)
    assert (first["address"], first["services"], first["turned"]) == (f"{_SITE}/", ["table", "blob"], True)
    assert first["uploaded"][-1] == "index.html"
    website = blobs.get_service_properties()["static_website"]
    assert (website.enabled, website.index_document) == (True, "index.html")
    for service, methods in ((tables, "GET,HEAD,POST"), (blobs, "GET,HEAD")):
        assert origins(service) == [_THEIRS, _SITE]
        rule = service.get_service_properties()["cors"][1]
        assert rule.allowed_methods in (methods, methods.split(","))
        assert "x-ms-continuation-NextRowKey" in rule.exposed_headers
    container = blobs.get_container_client("$web")
    kept = {each.name: each.content_settings for each in container.list_blobs()}
    assert sorted(kept) == sorted(first["uploaded"])
    for name, settings in kept.items():
        keep = files.ASKED_AGAIN if name == carried.NAME else "no-store"
        assert settings.cache_control == (files.KEPT if files.HASHED.search(name) else keep), name
        assert settings.content_type == files.TYPES[Path(name).suffix], name
    assert {Path(name).suffix for name in kept} >= {".gz", ".zip"}, "what works things out in the tab"
    index = container.download_blob("index.html").readall().decode()
    assert f"connect-src {tables.url.rpartition('/')[0]} " in index
    assert index.index("Content-Security-Policy") < index.index("<link"), "before anything is fetched"
    assert deployed() == {**first, "uploaded": [], "services": [], "turned": False}, "nothing has changed"


def test_a_rule_of_an_older_version_is_replaced(deployed: Any, tables: TableServiceClient) -> None:
    deployed("--site", _SITE)
    more: dict[str, Any] = {"allowed_headers": ["accept", "range"], "max_age_in_seconds": 3600}
    exposed = ["x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey"]
    exposed += ["Accept-Ranges", "Content-Length", "Content-Range"]
    tables.set_service_properties(cors=[TableCorsRule([_SITE], ["GET", "HEAD"], exposed_headers=exposed, **more)])
    assert deployed()["services"] == ["table"]
    rules: Any = tables.get_service_properties()["cors"]
    assert ["POST" in each.allowed_methods for each in rules] == [True]


def test_another_address_takes_the_place_of_the_one_before(deployed: Any, tables: TableServiceClient) -> None:
    deployed("--site", _SITE)
    assert deployed("--site", "https://graphs.example.org")["services"] == ["table", "blob"]
    assert origins(tables) == ["https://graphs.example.org"]


def test_files_of_an_older_page_are_taken_away_and_those_of_others_stay(
    deployed: Any, blobs: BlobServiceClient
) -> None:
    deployed("--site", _SITE)
    container = blobs.get_container_client("$web")
    container.upload_blob("main-OLDOLDOL.js", b"", metadata={"taskgraphdigest": "0"})
    container.upload_blob("theirs.html", b"")
    assert deployed()["removed"] == ["main-OLDOLDOL.js"]
    taken = deployed("--remove")
    assert ("index.html" in taken["removed"], taken["turned"]) == (True, False), "it shows files of others"
    assert [each.name for each in container.list_blobs()] == ["theirs.html"]
    container.delete_blob("theirs.html")


def test_without_an_address_or_room_or_over_another_site_nothing_is_put_there(
    deployed: Any, blobs: BlobServiceClient, tables: TableServiceClient
) -> None:
    assert "--site" in deployed(code=2)["error"]["message"]
    with contextlib.suppress(ResourceExistsError):
        blobs.create_container("$web")
    tables.set_service_properties(
        cors=[TableCorsRule([f"https://{n}.example.org"], ["GET"], **_MORE) for n in range(5)]
    )
    assert "CORS" in deployed("--site", _SITE, code=4)["error"]["message"]
    assert [each.name for each in blobs.get_container_client("$web").list_blobs()] == []
    tables.set_service_properties(cors=[])
    container = blobs.get_container_client("$web")
    container.upload_blob("index.html", b"theirs")
    assert "another site" in deployed("--site", _SITE, code=4)["error"]["message"]
    container.delete_blob("index.html")
    assert origins(tables) == []


def test_a_file_of_this_machine_has_no_website(tmp_path: Path) -> None:
    done = typed("web", "deploy", "--site", _SITE, "--store", f"sqlite:///{tmp_path}/store.db")
    assert done.exit_code == 2
    assert "taskgraph report ID" in done.stderr
