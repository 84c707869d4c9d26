"""Identifiers of graphs and tasks, references between rows, and what holds tasks back."""

import binascii
import hashlib
import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Final, TypeVar, dataclass_transform

from taskgraph.model import limits
from taskgraph.model.states import DEPARTING, INACTIVE, PAUSED, held_group

_C = TypeVar("_C")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[_C]) -> type[_C]:
    """`dataclass(frozen=True)` that mypy alone enforces.

    It is made three times as fast, for values by the thousand, and declared in half the time, for start-up.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


GRAPH: Final = "task-graph"  # row key of the graph row, and the reference of the graph as a dependent

_TARGET: Final = "target:"


def by_target(name: str) -> str:
    """The holder of a task whose target is paused; no row has it, for that is the gate's."""
    return _TARGET + name


def holders_in_words(held: Iterable[str], *, of: int = 1, spent: bool = False) -> str:
    """What holds a task back, or several (of) alike, for people. spent: the budget of the graph is."""
    return ", ".join(_holder_in_words(holder, of, spent) for holder in held)


def _holder_in_words(holder: str, of: int, spent: bool) -> str:
    if holder == PAUSED:
        return "the graph is paused, as its budget is spent" if spent else "the graph is paused"
    if holder == DEPARTING:
        return "the graph is about to go to another store"
    if holder == INACTIVE:
        return "it is not active" if of == 1 else "they are not active"
    if holder.startswith(_TARGET):
        return f"the target {holder.removeprefix(_TARGET)} is paused"
    return f"the group “{held_group(holder)}” is paused"


_GRAPH_ID = re.compile(limits.GRAPH_ID_PATTERN)
_SLUGID = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_-]{7}[Q-T][A-Za-z0-9_-][CGKOSWaeimquy26-][A-Za-z0-9_-]{10}[AQgw]$")


# Bits that a slugid keeps, and bits that it sets: those of a UUID of version 4, and no first character `-`.
_SLUGID_KEEPS: Final = 0x7FFFFFFF_FFFF_0FFF_3FFF_FFFFFFFFFFFF
_SLUGID_SETS: Final = 0x00000000_0000_4000_8000_000000000000


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def slugid_from(digest: bytes) -> str:
    """A slugid (22 characters, v4-shaped, never beginning with `-`) stamped from 16 bytes."""
    stamped = int.from_bytes(digest[:16], "big") & _SLUGID_KEEPS | _SLUGID_SETS
    return str(
        binascii.b2a_base64(stamped.to_bytes(16, "big"))[:22].translate(_URL_SAFE), "ascii"
    )  # as base64 does, at once


def task_id_of(graph_id: str, label: str) -> str:
    """The taskId of a label in a graph: derived, so that every step of a submission can be repeated (D4)."""
    return slugid_from(hashlib.sha256(f"{graph_id}\0{label}".encode("utf-8", "surrogatepass")).digest())


def task_ids_of(graph_id: str, labels: Iterable[str]) -> list[str]:
    """`task_id_of` of each label, in half of the time."""
    sha256, before = hashlib.sha256, f"{graph_id}\0"
    return slugids_from([sha256((before + label).encode("utf-8", "surrogatepass")).digest() for label in labels])


def slugids_from(digests: Sequence[bytes]) -> list[str]:
    """`slugid_from` of each, in a third of the time: all are stamped and written at once."""
    # Two more bytes let each begin at a digit of base 64: 18 bytes are 24 of these.
    together, count = b"".join([digest[:16] + b"\0\0" for digest in digests]), len(digests)
    keeps = int.from_bytes((_SLUGID_KEEPS << 16).to_bytes(18, "big") * count, "big")
    sets = int.from_bytes((_SLUGID_SETS << 16).to_bytes(18, "big") * count, "big")
    stamped = int.from_bytes(together, "big") & keeps | sets
    digits = binascii.b2a_base64(stamped.to_bytes(18 * count, "big"), newline=False).translate(_URL_SAFE)
    text = str(digits, "ascii")
    return [text[place : place + 22] for place in range(0, 24 * count, 24)]


LAST: Final = "@last"  # stands for the graph that was submitted last; no id has such a character

# Digits of ids that people type: without i, l, o and u, which look like others (Crockford's base 32).
_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_NAME_CHARS_MAX: Final = 40
_RANDOM_CHARS: Final = (4, 8, 16)


def named_ids(name: str, fresh: str) -> list[str]:
    """Ids for a new graph that carry its name, such as `build-shapes-7f3k`, the shortest first; none without a name.

    fresh: a random id, of which the last characters are made.
    """
    spelt = unicodedata.normalize("NFKD", name.casefold())
    plain = "".join(each for each in spelt if not unicodedata.combining(each))
    part = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:_NAME_CHARS_MAX].rstrip("-")
    if not part:
        return []
    digest = hashlib.sha256(fresh.encode()).digest()
    drawn = "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest)
    return [f"{part}-{drawn[:chars]}" for chars in _RANDOM_CHARS]


def is_graph_id(text: str) -> bool:
    return _GRAPH_ID.fullmatch(text) is not None


def is_task_id(text: str) -> bool:
    return _SLUGID.fullmatch(text) is not None


def resume_command(graph_id: str, holder: str, *, spent: bool = False) -> str:
    """spent: the budget of the graph is, so that it takes a larger one."""
    if holder == DEPARTING:
        return f"taskgraph transfer {graph_id} --stay"
    group = held_group(holder)
    if spent and not group:
        return f"taskgraph resume {graph_id} --budget AMOUNT"
    return f"taskgraph resume {graph_id}" + (f" --group {shlex.quote(group)}" if group else "")


def typed(command: str, graph_id: str, label: str, task_id: str) -> str:
    """A command about a task, safe to paste into a shell; the taskId replaces a label that cannot be printed."""
    name = label if label.isprintable() else task_id
    guard = "-- " if name.startswith("-") or graph_id.startswith("-") else ""
    return f"taskgraph {command} {guard}{graph_id} {shlex.quote(name)}"


def rerun_failed(graph_id: str) -> str:
    """The command that runs everything of a graph again that failed for good."""
    return "taskgraph rerun " + (f"--failed -- {graph_id}" if graph_id.startswith("-") else f"{graph_id} --failed")


# --- references: how rows name each other inside `requires` and `dependents` ------------------------------------
# a task: its 22-character taskId; a relay: `join:<owner>:<n>` or `fork:<owner>:<n>`; the graph row: `task-graph`.
# A relay's owner is a task, the graph, or a group: `group-<groupId>`. The joins of a group, `…:done` (its tasks have
# completed) and `…:start` (what it requires has), are shared: any number of rows require them by this very name. All
# other relays are pieces, which work for one node alone: `join:group-<groupId>:done-0` is a piece of `…:done`.


_GROUP_OWNER: Final = "group-"  # no taskId is as long as this with an id behind it
_GROUP_JOIN: Final = "join:group-"

WRITERS: Final = "writers"  # column of the graph row: commits of its submission at a time, if more than one


def fence_key(number: int) -> str:
    """Row key of the fence of a writer of a submission: the graph row for the first."""
    return f"submitting:{number}" if number else GRAPH


def event_key(sequence: int) -> str:
    """Row key of an event row; the keys sort as the journal reads."""
    return "event:" + str(sequence).zfill(10)  # half of what a format takes


def row_key(reference: str) -> str:
    """The row key that a reference points at."""
    return reference if ":" in reference or reference == GRAPH else f"task:{reference}"


def reference_of(key: str) -> str:
    return key.removeprefix("task:")


def join_reference(owner: str, number: str) -> str:
    """Reference of a join of `owner` (a taskId, `task-graph`, or the owner that `group_owner` names)."""
    return f"join:{owner}:{number}"


def group_owner(group_id: str) -> str:
    return f"{_GROUP_OWNER}{group_id}"


def fork_reference(reference: str, number: str) -> str:
    if is_relay(reference):
        _, owner, own = reference.split(":", 2)
        return f"fork:{owner}:{own}:{number}"
    return f"fork:{reference}:{number}"


def is_relay(reference: str) -> bool:
    return reference.startswith(("join:", "fork:"))


def is_shared(reference: str) -> bool:
    """Whether a reference names a join of a group, which any number of rows require: a node of its own."""
    return reference.startswith(_GROUP_JOIN) and owner_of(reference) == reference


def is_piece(reference: str) -> bool:
    """Whether a reference names a relay that works for one node alone, by its name."""
    return is_relay(reference) and not is_shared(reference)


def owner_of(reference: str) -> str:
    """The task, `task-graph` or shared join of a group that a relay works for; the reference itself otherwise."""
    if not is_relay(reference):
        return reference
    kind, owner, own = reference.split(":", 2)
    if not owner.startswith(_GROUP_OWNER):
        return owner
    if kind == "fork":
        return f"join:{owner}:{own.rpartition(':')[0]}"
    base, _, piece = own.rpartition("-")
    return f"join:{owner}:{base if piece.isdecimal() else own}"


def group_of(reference: str) -> str:
    """The groupId of a group's relay; "" for any other reference."""
    if not is_relay(reference):
        return ""
    owner = reference.split(":", 2)[1]
    return owner.removeprefix(_GROUP_OWNER) if owner.startswith(_GROUP_OWNER) else ""


def edge_name_of(reference: str) -> str:
    """The name under which dependents count a node down: for a fork that of its task or shared join."""
    return owner_of(reference) if reference.startswith("fork:") else reference


def group_key(group_id: str) -> str:
    return f"group:{group_id}"


_COMPACT_IDS: Final = re.compile(r'\["[\w:.-]+"(?:,"[\w:.-]+")*\]', re.ASCII)
WHOLE_GRAPH: Final = "graph"  # scope of a limit on all tasks; that of a group is its `group_owner`


def limit_key(scope: str) -> str:
    return f"limit:{scope}"


def limit_scope(graph_id: str, group: str = "") -> str:
    """The scope of a limit: of a group by name, or of the whole graph."""
    return group_owner(task_id_of(graph_id, group)) if group else WHOLE_GRAPH


_IDS_JSON: Final = json.JSONEncoder(separators=(",", ":")).encode  # made once: json.dumps makes one for each call


def compact_ids(text: object) -> list[str] | None:
    """The references of a column that `ids_text` wrote, at a glance; None for any other text, and for unusual ones."""
    if type(text) is str and _COMPACT_IDS.fullmatch(text):
        return text[2:-2].split('","')
    return [] if text in ("", "[]") else None


def ids_text(references: Iterable[str]) -> str:
    """A list of references as the compact JSON text that a column holds."""
    listed = list(references)
    if not listed:
        return "[]"
    text = '["' + '","'.join(listed) + '"]'
    # References hardly ever hold what JSON must escape: then they have only to be put side by side. As a text of JSON
    # that is longer by its own two quotes, and by one character for each quote in it.
    return text if len(encode_basestring_ascii(text)) == len(text) + 2 + 2 * len(listed) else _IDS_JSON(listed)
