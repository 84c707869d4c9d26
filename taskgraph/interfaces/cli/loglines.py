"""Log records as lines of JSON (docs/telemetry.md); what exporters of telemetry and a store in trouble say, in short.

Of an exception only the type and the stack are written: its text may quote what a task was given.
"""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any, Final

from taskgraph.model.errors import StorageUnavailable, trail

_EXPORTERS: Final = "opentelemetry.exporter."
_END: Final = re.compile(r"host='([^']+)', port=(\d+)")
_ERRNO: Final = re.compile(r"\[Errno -?\d+\] ([^'\")\]]+)")
_CHARS_MAX: Final = 200
_TROUBLE_SECONDS: Final = 60.0


class ExportersInShort(logging.Filter):
    """Lets pass what exporters of OpenTelemetry say once, in one line: they say it at each try, with all causes."""

    def __init__(self) -> None:
        super().__init__()
        self._said = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(_EXPORTERS):
            return True
        if self._said:
            return False
        self._said = True
        record.msg, record.args, record.exc_info = _in_short(record.getMessage()), (), None
        return True


class TroubleInShort(logging.Filter):
    """Lets a warning that the store does not work pass once a minute: each part of a process has it at each try."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -_TROUBLE_SECONDS  # the time of the record that passed last
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        args = record.args if isinstance(record.args, tuple) else ()
        if record.levelno != logging.WARNING or not any(isinstance(each, StorageUnavailable) for each in args):
            return True
        if record.created - self._last < _TROUBLE_SECONDS:
            self._left_out += 1
            return False
        if self._left_out:
            words = f" ({self._left_out:,} more such warnings in the minute before)"
            record.msg, record.args = record.getMessage() + words, ()
        self._last, self._left_out = record.created, 0
        return True


def _in_short(message: str) -> str:
    reason, end = _ERRNO.search(message), _END.search(message)
    short = reason[1].strip().lower() if reason else (message.splitlines() or [""])[0][:_CHARS_MAX]
    where = f"{end[1]}:{end[2]}: " if end else ""
    return f"telemetry is not sent: {where}{short} (this is said once; more with --verbose)"


class JsonLines(logging.Formatter):
    """One JSON object for each record, in ASCII, so that no terminal is obeyed and no line is broken."""

    def __init__(self) -> None:
        super().__init__()
        from taskgraph.engine import telemetry  # most commands write no such lines

        self._telemetry = telemetry

    def format(self, record: logging.LogRecord) -> str:
        fields = self._telemetry.fields_in(record)
        made: dict[str, Any] = {
            "time": self._telemetry.timestamp(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": "handled" if fields else record.getMessage(),
            **fields,
        }
        if "traceId" not in made:
            trace, span = self._telemetry.trace_and_span()
            if trace:
                made["traceId"], made["spanId"] = trace, span
        if record.exc_info and record.exc_info[1] is not None:
            made["exception"] = trail(record.exc_info[1])
        return json.dumps(made, separators=(",", ":"), default=str)
