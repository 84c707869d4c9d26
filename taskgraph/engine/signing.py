"""Signatures of archives by Ed25519 keys: over the digest of a file, its counts, who signed it and when.

A pair of keys lies in two files: one signs and is its owner's alone, one verifies and is public.
"""

import base64
import binascii
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model.errors import InvalidInput, InvalidSettings, Refused
from taskgraph.storage.private_files import unwritable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_VARIABLE: Final = "TASKGRAPH_ARCHIVE_KEY"
TRUSTED_VARIABLE: Final = "TASKGRAPH_ARCHIVE_TRUSTED"
REQUIRE_VARIABLE: Final = "TASKGRAPH_ARCHIVE_REQUIRE_SIGNATURE"

_TEXT_CHARS_MAX: Final = 200
_PURPOSE: Final = "taskgraph archive 1"


@dataclass(frozen=True, slots=True)
class Signature:
    """A verified signature. key: the public key, in base64. by, at: who signed and when, which nothing proves."""

    key: str
    by: str
    at: str
    value: str

    @property
    def object(self) -> dict[str, str]:
        """The signature as a file holds it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Signer:
    """by: who signs, for people. at: when."""

    key: "Ed25519PrivateKey"
    by: str
    at: str

    def sign(self, said: Mapping[str, Any]) -> Signature:
        """said: what a file says of itself."""
        key = _public_text(self.key.public_key().public_bytes_raw())
        value = self.key.sign(_message(said, key, self.by, self.at))
        return Signature(key, self.by, self.at, base64.b64encode(value).decode("ascii"))


@dataclass(frozen=True, slots=True)
class Trust:
    """keys: the files of trusted keys, by their base64 texts. required: archives that they did not sign are refused."""

    keys: Mapping[str, str]
    required: bool = False

    def named(self, signature: Signature | None) -> str:
        """The file of the key, "" if it is not trusted or there is none."""
        return self.keys.get(signature.key, "") if signature is not None else ""

    def check(self, signature: Signature | None, source: str) -> None:
        """Raises Refused."""
        if not self.required or self.named(signature):
            return
        what = "is not signed" if signature is None else f"is signed by a key that is not trusted here: {signature.key}"
        remedy = f"put the public key of who made it into {TRUSTED_VARIABLE}"
        raise Refused(f"{source} {what}, and a signature is required; {remedy}", "not-signed")


NO_TRUST: Final = Trust({})


def read_signature(found: Any, said: Mapping[str, Any], source: str) -> Signature:
    """The signature of a file, verified. Raises InvalidInput."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    names = ("key", "by", "at", "value")
    named = isinstance(found, dict) and found.keys() == set(names)
    if not named or not all(isinstance(each, str) and len(each) <= _TEXT_CHARS_MAX for each in found.values()):
        raise InvalidInput(f"{source}: its signature cannot be read")
    key, by, at, value = (found[name] for name in names)
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
        public.verify(base64.b64decode(value, validate=True), _message(said, key, by, at))
    except (ValueError, binascii.Error, InvalidSignature) as error:
        raise InvalidInput(f"{source}: its signature is bad; it is not what was signed") from error
    return Signature(key, by, at, value)


def _message(said: Mapping[str, Any], key: str, by: str, at: str) -> bytes:
    signed = {"purpose": _PURPOSE, **said, "key": key, "by": by, "at": at}
    return json.dumps(signed, sort_keys=True, separators=(",", ":")).encode("ascii")


def _public_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def make_key(path: Path) -> tuple[Path, str]:
    """Write a new key into a file of its owner's alone, and its public part beside it; returns that file and its text.

    Raises Refused if one of the files exists, and the errors of `storage.private_files.unwritable`.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    beside = path.with_name(path.name + ".pub")
    for place in (path, beside):
        if place.exists():
            raise Refused(f"{place} exists, and a key is never overwritten; choose another name", "exists")
    made: list[Path] = []
    try:
        for place, data, mode in ((path, private, 0o600), (beside, public, 0o644)):
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                made.append(place)
                file.write(data)
    except OSError as error:
        for each in made:
            each.unlink(missing_ok=True)  # half a key would be in the way of the next try
        raise unwritable(place, error) from error
    return beside, _public_text(key.public_key().public_bytes_raw())


def _private_key(path: Path) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        data = path.read_bytes()
        others = os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077
    except OSError as error:
        raise InvalidSettings(f"{KEY_VARIABLE}: {path} cannot be read: {error.strerror or error}") from error
    if others:
        raise InvalidSettings(f"{KEY_VARIABLE}: {path} can be read by others; make it its owner's alone: chmod 600")
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise InvalidSettings(f"{KEY_VARIABLE}: {path} is no key; taskgraph keygen FILE makes one") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidSettings(f"{KEY_VARIABLE}: {path} is no Ed25519 key; taskgraph keygen FILE makes one")
    return key


def _public_key(path: Path) -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise InvalidSettings(f"{TRUSTED_VARIABLE}: {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError) as error:
        raise InvalidSettings(f"{TRUSTED_VARIABLE}: {path} is no public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidSettings(f"{TRUSTED_VARIABLE}: {path} is no public Ed25519 key")
    return _public_text(key.public_bytes_raw())


def read_signer(environ: Mapping[str, str], by: str, at: str) -> Signer | None:
    """None if no key is set. Raises InvalidSettings."""
    path = environ.get(KEY_VARIABLE, "")
    return Signer(_private_key(Path(path)), by[:_TEXT_CHARS_MAX], at) if path else None


def read_trust(environ: Mapping[str, str], *, required: bool = False) -> Trust:
    """Trust in the own key, and in the public ones that a setting names. Raises InvalidSettings."""
    keys: dict[str, str] = {}
    for path in filter(None, environ.get(TRUSTED_VARIABLE, "").split(os.pathsep)):
        keys.setdefault(_public_key(Path(path)), path)
    if own := environ.get(KEY_VARIABLE, ""):
        keys.setdefault(_public_text(_private_key(Path(own)).public_key().public_bytes_raw()), own)
    said = environ.get(REQUIRE_VARIABLE, "")
    if said not in ("", "0", "1"):
        raise InvalidSettings(f"{REQUIRE_VARIABLE}=“{said[:40]}”: write 1 or 0")
    return Trust(keys, required or said == "1")
