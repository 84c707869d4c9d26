"""The page as a static website of the account itself: put there, taken away, and links to it.

What lies there is code and no data. It reads rows by the signature of a link, straight from the tables, so browsers
are let in from its origin alone.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, urlsplit

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.grant import Grant
from taskgraph.model.errors import InvalidInput, InvalidSettings, Refused
from taskgraph.storage.site import RULES_MAX, Rule, Site

_WHICH: Final = "az storage account show --name ACCOUNT --query primaryEndpoints.web --output tsv"
_PAGING: Final = ("x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey")
_RANGES: Final = ("Accept-Ranges", "Content-Length", "Content-Range")


Files = Mapping[str, tuple[bytes, str, str]]
"""Name to bytes, media type, how long browsers keep it. The last is the one that names the others."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """address: of the page. What was other than it is now: files, and services whose rules have changed."""

    address: str
    uploaded: tuple[str, ...]
    removed: tuple[str, ...]
    services: tuple[str, ...]
    turned: bool


async def deploy(app: App, made: Callable[[Sequence[str]], Files], address: str = "") -> Deployed:
    """Put the page there, or what of it is new. address: of the site; "" for the one that was noted the last time.

    made: gives the files of the page, which may ask these endpoints alone. Raises InvalidInput without an address,
    Refused where another site lies there, or where there is no room for a rule. It may be repeated, and goes on where
    it was cut off.
    """
    site = _site(app)
    files = made((site.table_endpoint, site.blob_endpoint))
    index = list(files)[-1]
    noted = await site.address()
    address = _checked(address or noted)
    there = await site.files()
    if there.get(index, "ours") == "":
        raise Refused(f"another site lies in the container $web: its {index} is none of ours", "another-site")
    tables, blobs = await site.rules()
    old = [*_forms(address), *(_forms(noted) if noted else ())]
    wanted = [_with(tables, _rule(address, adds=True), old), _with(blobs, _rule(address), old)]
    turned = not await site.is_on()
    if turned or not there:
        await site.turn(True)
    uploaded = []
    for name, (data, kind, keep) in files.items():  # in their order: where the last is, all is
        digest = hashlib.sha256(data).hexdigest()
        if there.get(name) != digest:
            await site.put(name, data, kind, keep, digest)
            uploaded.append(name)
    removed = tuple(sorted(name for name, digest in there.items() if digest and name not in files))
    await site.remove(removed)
    services = await _set(site, (tables, blobs), wanted)
    if address != noted:
        await site.note_address(address)
    return Deployed(address, tuple(uploaded), removed, services, turned)


async def remove(app: App) -> Deployed:
    """Take our files and rules away. The website is switched off where nothing of others lies in it."""
    site = _site(app)
    address = await site.address()
    there = await site.files()
    ours = tuple(sorted(name for name, digest in there.items() if digest))
    rules = await site.rules()
    left = [[each for each in some if not address or each not in _forms(address)] for some in rules]
    turned = bool(ours) and len(ours) == len(there) and await site.is_on()
    if turned:
        await site.turn(False)
    await site.remove(ours)
    services = await _set(site, rules, left)
    if address:
        await site.note_address("")
    return Deployed(address, (), ours, services, turned)


async def link(app: App, found: Grant, *, page: str = "", files: bool = False, changes: bool = False) -> Grant:
    """The same with an address of the page that opens it. page: where it is; "" for the one that was deployed.

    files: with those of runs: of any graph, for who knows the ids of its tasks, since the service signs for one file
    or for all. changes: it may ask for changes of the graph, and so for what this runs.

    Raises InvalidInput where no page is known, Refused where there is no key to sign with.
    """
    if not page and app.site is not None:
        page = await app.site().address()
    if not page:
        raise InvalidInput(
            "no page is known to open it with: put one beside the tables by `taskgraph web deploy`, or name one by "
            "--page"
        )
    parts = {"at": f"{found.endpoint}/{found.table}", "sas": found.token}
    if files:
        if app.sign_files is None:
            raise Refused("the output of runs can be opened where the store has the account's key alone", "no-key")
        parts["blobs"] = app.sign_files(found.expires, found.addresses)
    if changes:
        if app.sign_changes is None:
            raise Refused("changes can be signed for where the store has the account's key alone", "no-key")
        parts["add"], parts["live"] = app.sign_changes(found.table, found.graph_id, found.expires, found.addresses)
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parts.items())
    return replace(found, link=f"{_checked(page)}#/g/{quote(found.graph_id, safe='')}?{query}")


def _site(app: App) -> Site:
    app.check_direct("deploying the page", "that server shows the page itself")
    if app.site is None:
        raise InvalidSettings(
            f"{app.settings.display} is no storage account, and so has no website: open the page by `taskgraph ui`, or "
            "hand on a graph as one file by `taskgraph report ID`"
        )
    return app.site()


def _checked(address: str) -> str:
    if not address:
        raise InvalidInput(f"name the address of the account's website by --site: {_WHICH}")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise InvalidInput(f"“{address}” is no address of a site: {_WHICH}")
    return address if parts.path.endswith(".html") else f"{address.rstrip('/')}/"


def _rule(address: str, *, adds: bool = False) -> Rule:
    """adds: rows may be added too, by who has a signature for it."""
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    if adds:
        return Rule((origin,), ("GET", "HEAD", "POST"), ("accept", "content-type"), _PAGING, 3600)
    return Rule((origin,), ("GET", "HEAD"), ("accept", "range"), (*_PAGING, *_RANGES), 3600)


def _forms(address: str) -> tuple[Rule, ...]:
    """Our rules of a site: versions before changes by a link had the second for tables too."""
    return _rule(address, adds=True), _rule(address)


def _with(rules: list[Rule], rule: Rule, old: Sequence[Rule]) -> list[Rule]:
    """The rules of others, and ours in place of the old ones. Raises Refused where there is no room."""
    if rule in rules and not any(each in rules for each in old if each != rule):
        return rules
    made = [*(each for each in rules if each not in old), rule]
    if len(made) > RULES_MAX:
        raise Refused(
            f"the account has {RULES_MAX} CORS rules already, and takes no more: take one away "
            "(az storage cors list; az storage cors clear), and deploy again",
            "no-room",
        )
    return made


async def _set(site: Site, old: tuple[list[Rule], list[Rule]], new: list[list[Rule]]) -> tuple[str, ...]:
    """The services whose rules were other ones."""
    changed = []
    for name, before, after, put in zip(
        ("table", "blob"), old, new, (site.set_table_rules, site.set_blob_rules), strict=True
    ):
        if before != after:
            await put(after)
            changed.append(name)
    return tuple(changed)
