"""Coverage-guided fuzzing by atheris: `scripts/fuzz [--seconds S] [message | document | label]`.

Each target holds the same promises as the tests beside it, on inputs that are grown towards code not yet reached. What
breaks one is written below build/fuzz, and becomes a test. The corpus stays there as well, and out of the repository.
"""

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "fuzz"


def message(data: bytes) -> None:
    """A body is a message that can be written and read again, or a sentence says why not."""
    from taskgraph.model.errors import InvalidMessage
    from taskgraph.model.messages import UnknownVersion, parse, to_text

    for body in (data, data.decode("utf-8", "surrogatepass") if _is_text(data) else data.decode("latin-1")):
        try:
            found = parse(body)
        except InvalidMessage as error:
            if not str(error).isprintable():
                raise AssertionError(str(error)) from error
        except UnknownVersion:
            continue
        else:
            if parse(to_text(found)) != found:
                raise AssertionError(found)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def document(data: bytes) -> None:
    """A document is valid, or its problems have places and remedies."""
    from taskgraph.documents.canonical import content_hash, document_object
    from taskgraph.documents.plan import plan
    from taskgraph.documents.warnings import warnings
    from taskgraph.model.errors import InvalidGraph
    from taskgraph.protocol.layout import lay_out
    from taskgraph.testing import ManualClock
    from tests.hostile.plans import judged

    found = judged(data)
    if not isinstance(found, InvalidGraph):
        warnings(found)
        plan(found)
        lay_out("g", found.tasks, stamp="0", now=ManualClock().now())
        again = judged(json.dumps(document_object(found)))
        if isinstance(again, InvalidGraph) or content_hash(again) != content_hash(found):
            raise AssertionError("written and read again, it is another one")


def label(data: bytes) -> None:
    """Nothing that a terminal obeys comes out of what makes foreign text harmless."""
    from taskgraph.interfaces.cli.output import Column, LogText, Output, fitted, json_text, safe
    from tests.hostile.terminal import _Terminal, dangerous

    text = data.decode("utf-8", "replace")
    log = LogText(colour=False)
    half = len(text) // 2
    shown = [
        safe(text),
        fitted(safe(text), 20),
        json_text({text: [text]}),
        log.take(text[:half]) + log.take(text[half:]),
    ]
    out, err = _Terminal(True), _Terminal(True)
    output = Output(out, err, {"TERM": "xterm"})
    output.say(text)
    output.data(text)
    output.table([text], [Column("A", str, flexible=True), Column("B", str, state=True)])
    written = [stream.buffer.getvalue() for stream in (out, err)]  # type: ignore[attr-defined]
    for each in (*((one + log.end()).replace("\t", "").encode() for one in shown), *written):
        if found := dangerous(each):
            raise AssertionError(f"{text!r}: {found}")
    if json.loads(json_text({text: [text]})) != {text: [text]}:
        raise AssertionError(text)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {"message": message, "document": document, "label": label}


def seeds(target: str) -> list[bytes]:
    """Inputs to begin with."""
    from taskgraph.model import schemas
    from tests.hostile.mutate import HOSTILE_TEXTS
    from tests.hostile.plans import BASES
    from tests.hostile.terminal import ATTACK

    if target == "label":
        return [each.encode("utf-8", "replace") for each in (*HOSTILE_TEXTS, ATTACK)]
    values: list[Any] = [*BASES]
    if target == "message":
        names = [name for name in schemas.names() if name.startswith("message-")]
        values = [example for name in names for example in schemas.schema(name)["examples"]]
    return [json.dumps(value).encode() for value in values]


def run(target: str, seconds: int) -> None:
    """In this process; never returns. atheris ends it."""
    atheris = importlib.import_module("atheris")  # of a group of its own, without types

    with atheris.instrument_imports(include=["taskgraph", "json"]):
        import taskgraph.documents.plan  # noqa: F401
    corpus = FOLDER / target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds(target)):
        (corpus / f"seed-{number}").write_bytes(data)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={256 if target == 'label' else 4096}",
        "-timeout=10",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={FOLDER}/{target}-", str(corpus)], TARGETS[target])
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run(options.target, options.seconds)
    code = 0
    for target in [options.target] if options.target else TARGETS:
        print(f"-- {target}: {options.seconds} s", flush=True)
        words = [sys.executable, "-m", "tests.hostile.fuzz", target, "--seconds", str(options.seconds), "--here"]
        code = subprocess.run(words, cwd=ROOT, check=False).returncode or code
    return code


if __name__ == "__main__":
    sys.exit(main())
