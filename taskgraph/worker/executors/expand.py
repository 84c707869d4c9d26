"""Executor `expand`: a task that extends its graph by what results of other tasks come to (`documents.expansion`)."""

import asyncio
from collections.abc import Mapping
from typing import Any

from taskgraph.documents.expansion import expansion
from taskgraph.documents.references import EXPAND
from taskgraph.model.errors import InvalidInput
from taskgraph.worker.executors.contract import Outcome, Work, WriteLog, malformed


class ExpandExecutor:
    name = EXPAND
    instant = False
    queue = None

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        try:
            adds = await asyncio.to_thread(expansion, work.label, work.definition)
        except InvalidInput as error:
            return malformed(str(error))
        await write_log(f"{len(adds.get('tasks', ())):,} tasks\n".encode())
        return Outcome(failed=False, adds=adds)
