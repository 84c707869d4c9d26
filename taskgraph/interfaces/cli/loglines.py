"""Log records as lines of JSON.

What this room is for: the one shape of a line (docs/telemetry.md): time, level, logger, message, the fields that a
record brings with it, and the trace that it belongs to. It never writes the text of an exception, which may quote what
a task was given: its type and its way are told.
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
        """The line, without its end."""
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
