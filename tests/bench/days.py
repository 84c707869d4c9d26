"""How long the file of an embedded store gets: `python -m tests.bench.days FILE --days 40 --graphs 100 --keep-days 5`.

What this room is for: each day so many graphs run, and those that are too old are deleted as `serve` does. The
clock is set forward between the hours of a day; all else is real. On the last day one large graph comes too, and is
deleted by the command.
"""

import argparse
import asyncio
import secrets
import sqlite3
import time
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.sweep import sweep
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.operations.archive import delete
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.clock import SystemClock
from tests.bench import report
from tests.bench.old_stores import play

_PARTS = 4  # of a day, with a look at what is too old in each: a clock that leaps further ends nothing


class SetForward(SystemClock):
    """The machine's clock, so much ahead."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


async def keep(app: App, keep_days: float) -> int:
    """What `serve` does every ten minutes, until there is no more to do; gives how many graphs were deleted."""
    deleted = 0
    while True:
        kept = await keep_house(app.handlers, app.logs, keep_days=keep_days)
        deleted += len(kept.deleted)
        shorter = app.give_back is not None and await app.give_back()
        if not kept.more and not shorter:
            return deleted


def row(path: Path, name: str, deleted: int) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM row").fetchone()
        (pages,), (free,) = (
            connection.execute(f"PRAGMA {each}").fetchone() for each in ("page_count", "freelist_count")
        )
    log = path.with_name(f"{path.name}-wal")
    sizes = path.stat().st_size / 1e6, (log.stat().st_size if log.exists() else 0) / 1e6
    return [
        name,
        f"{deleted:,}",
        f"{rows:,}",
        *(report.number(size, 1) for size in sizes),
        f"{100 * free / pages:.0f} %",
    ]


async def main(given: argparse.Namespace) -> None:
    path, clock = Path(given.file), SetForward()
    lines: list[list[str]] = []
    settings = read_settings(f"sqlite:///{path.absolute()}", {}, cwd=Path.cwd())
    async with open_app(settings, clock=clock) as app:
        for day in range(1, given.days + 1):
            deleted = 0
            for _ in range(_PARTS):
                for _ in range(given.graphs // _PARTS):
                    await play(app, f"day-{day}-{secrets.token_hex(8)}")
                clock.ahead += timedelta(days=1) / _PARTS
                await sweep(app.handlers, logs=app.logs)
                deleted += await keep(app, given.keep_days)
            if day <= given.keep_days + 1 or day % 5 == 0:
                lines.append(row(path, f"day {day}", deleted))
                print(lines[-1], flush=True)
        await play(app, "large", given.large)
        lines.append(row(path, f"{given.large} has run", 0))
        began = time.process_time()
        await delete(app, "large")
        lines.append(row(path, f"and is deleted ({time.process_time() - began:.1f} s of CPU)", 1))
    lines.append(row(path, "the process has ended", 0))
    print(report.table(["", "graphs deleted", "rows", "file MB", "log MB", "free"], lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure how long the file gets while graphs come and go.")
    parser.add_argument("file", help="a file to be made")
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--graphs", type=int, default=100, help="of 44 tasks each, in a day")
    parser.add_argument("--keep-days", type=float, default=5)
    parser.add_argument("--large", default="fan-100000", help="the shape of the large graph")
    asyncio.run(main(parser.parse_args()))
