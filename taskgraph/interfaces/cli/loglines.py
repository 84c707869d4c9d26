"""Log records as lines of JSON (docs/telemetry.md).

Of an exception only the type and the stack are written: its text may quote what a task was given.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from taskgraph.engine.telemetry import fields_in, timestamp, trace_and_span
from taskgraph.model.errors import trail


class JsonLines(logging.Formatter):
    """One JSON object for each record, in ASCII, so that no terminal is obeyed and no line is broken."""

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_in(record)
        made: dict[str, Any] = {
            "time": timestamp(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": "handled" if fields else record.getMessage(),
            **fields,
        }
        if "traceId" not in made:
            trace, span = trace_and_span()
            if trace:
                made["traceId"], made["spanId"] = trace, span
        if record.exc_info and record.exc_info[1] is not None:
            made["exception"] = trail(record.exc_info[1])
        return json.dumps(made, separators=(",", ":"), default=str)
