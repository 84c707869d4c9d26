"""An executor of its own package: a task with `{"executor": "sql"}` runs its statements and hands on the last rows."""

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from taskgraph import Executor, Outcome, Work, WriteLog


class SqlExecutor(Executor):
    name = "sql"

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        try:
            rows = await asyncio.to_thread(query, work.definition["payload"])
        except (KeyError, sqlite3.Error) as error:
            return Outcome(failed=True, reason=f"{type(error).__name__}: {error}")
        await write_log(f"{len(rows)} rows\n".encode())
        return Outcome(failed=False, result=json.dumps(rows).encode())


def query(payload: Mapping[str, Any]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    with closing(sqlite3.connect(payload["database"])) as database, database:
        for statement in payload["statements"]:
            rows = [list(row) for row in database.execute(statement)]
    return rows
