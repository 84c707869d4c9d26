"""`scripts/demonstrate`: play scenes with real processes over real stores, print what they print, and check them.

Nothing is played back: every line after a `$` was typed by this program, and what stands below it was printed by that
command, or behind `⇒` where it was a single line. Lines with `✓` are checks that held; `--` says what a scene does
beside typing, or does not show.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from tests import azurite as emulator
from tests.demonstration.scenes import SCENES
from tests.demonstration.stage import BrokenPromise, Stage

EXIT_BROKEN = 1
EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/demonstrate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog="exit codes: 0 as promised, 1 a scene was not (it is named), 2 wrong usage, 130 interrupted",
    )
    parser.add_argument("--store", choices=("embedded", "azurite", "both"), default="both")
    parser.add_argument("--scene", choices=sorted(SCENES), action="append", help="only this one; again for more")
    parser.add_argument("--keep", action="store_true", help="keep the folders, with the output of what ran beside")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended first
    kinds = ("embedded", "azurite") if options.store == "both" else (options.store,)
    broken: list[str] = []
    try:
        for kind in kinds:
            with _store(kind) as address:
                broken += [f"{name} ({kind})" for name in _play(kind, address, options.scene or SCENES, options.keep)]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    if broken:
        print("not as promised: " + ", ".join(broken))
        return EXIT_BROKEN
    return 0


def _play(kind: str, address: str, names: Collection[str], keep: bool) -> list[str]:
    """The names of scenes that broke a promise."""
    broken, seconds = [], []
    began = time.monotonic()
    for name in SCENES:
        if name not in names:
            continue
        scene = SCENES[name]
        said = (scene.__doc__ or "").strip().splitlines()[0]
        print(f"=== {name}, {kind}: {said}", flush=True)
        place = tempfile.mkdtemp(prefix=f"taskgraph-{name}-")
        stage = Stage(kind, address, Path(place))
        start = time.monotonic()
        try:
            with stage:
                scene(stage)
        except (BrokenPromise, AssertionError) as error:
            broken.append(name)
            print(f"✗ scene {name} ({kind}) is not as promised: {error}", flush=True)
            stage.tell_logs(sys.stderr)
        finally:
            if not keep:
                stage.remove()
        seconds.append(f"{name} {time.monotonic() - start:.0f}")
        if keep:
            print(f"-- kept in {place}", flush=True)
    word = "broken: " + ", ".join(broken) if broken else "everything was as promised"
    print(f"{kind}: {word}; {time.monotonic() - began:.0f} s ({', '.join(seconds)})", flush=True)
    return broken


@contextlib.contextmanager
def _store(kind: str) -> Iterator[str]:
    """The address of a store; of the embedded one each scene has a file of its own, named there."""
    if kind == "embedded":
        yield ""
    elif running := os.environ.get(emulator.VARIABLE):
        yield running
    else:
        with emulator.azurite() as connection_string:
            print(f"-- azurite {emulator.version()}", flush=True)
            yield connection_string


if __name__ == "__main__":
    sys.exit(main())
