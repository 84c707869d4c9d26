"""Values of columns as JSON, in archives and over HTTP: what JSON has no form for says what it is."""

from datetime import UTC, datetime
from typing import Any

from taskgraph.model.columns import Value


def as_json(value: Value) -> Any:
    """Text, booleans and whole numbers as they are; others as an object with their kind."""
    if isinstance(value, datetime):
        return {"time": value.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    if isinstance(value, float):
        return {"double": value}
    return str(value) if isinstance(value, str) else value


def read(value: Any) -> Value:
    """Raises ValueError for what is none."""
    match value:
        case {"time": str(text)} if len(value) == 1:
            return datetime.fromisoformat(text).astimezone(UTC)
        case {"double": int() | float() as number} if len(value) == 1:
            return float(number)
        case str() | bool() | int():
            return value
    raise ValueError(f"{str(value)[:60]!r} is no value of a column")
