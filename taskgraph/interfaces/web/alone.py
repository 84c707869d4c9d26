"""The page where no server stands behind it: files for any static host, and one file with a graph in it."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from taskgraph.interfaces.web import carried
from taskgraph.interfaces.web.files import ASKED_AGAIN, HASHED, INDEX, KEPT, NOT_BUILT, RULES, STATIC, TYPES, are_built
from taskgraph.model.errors import InvalidSettings

REPORT: Final = "report.template"
_HEAD: Final = '<meta charset="utf-8" />'
_HOLE: Final = ">ARCHIVE</script>"
_CHUNK: Final = 3 << 16  # a multiple of three, so that base64 of pieces is base64 of the whole


def files(services: Sequence[str]) -> dict[str, tuple[bytes, str, str]]:
    """Name to bytes, media type, how long it is kept; index.html is the last. services: endpoints that it may ask.

    Raises InvalidSettings where the page is not built.
    """
    found = {}
    for place in sorted(_built().iterdir()):
        if place.suffix in TYPES and place.name != INDEX:
            keep = KEPT if HASHED.search(place.name) else "no-store"
            found[place.name] = place.read_bytes(), TYPES[place.suffix], keep
    found[carried.NAME] = carried.zipped(), TYPES[".zip"], ASKED_AGAIN
    text = (STATIC / INDEX).read_text("utf-8").replace(_HEAD, f"{_HEAD}\n{_metas(services)}", 1)
    found[INDEX] = text.encode(), TYPES[".html"], "no-store"
    return found


def _metas(services: Sequence[str]) -> str:
    """What headers say otherwise: a static host sets none."""
    origins = dict.fromkeys("/".join(each.split("/", 3)[:3]) for each in services)
    rules = {**RULES, "connect-src": " ".join(origins)}
    del rules["frame-ancestors"]  # which a document cannot say of itself: the page looks whether it is in a frame
    policy = "; ".join(f"{name} {value}" for name, value in rules.items())
    return (
        f'    <meta http-equiv="Content-Security-Policy" content="{policy}" />\n'
        '    <meta name="taskgraph-source" content="none" />'
    )


def write_report(archive: BinaryIO, out: BinaryIO) -> None:
    """The page with this archive in it. Raises InvalidSettings where the page is not built."""
    before, hole, after = (_built() / REPORT).read_text("utf-8").partition(_HOLE)
    if not hole:
        raise InvalidSettings(f"{STATIC / REPORT} is no page of a report: run scripts/web again")
    out.write(f"{before}>".encode())
    while piece := archive.read(_CHUNK):
        out.write(base64.b64encode(piece))
    out.write(f"</script>{after}".encode())


def _built() -> Path:
    if not are_built():
        raise InvalidSettings(NOT_BUILT)
    return STATIC
