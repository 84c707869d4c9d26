"""Paths of files below a task's working folder, as documents and lists of files name them."""

from typing import Any

from taskgraph.model.json_strict import show


def wrong_path(path: Any) -> str:
    """Why this names no file below a task's working folder, as the end of a sentence about it; "" if it does."""
    if not isinstance(path, str) or not path or "\0" in path:
        return "must be a text that is not empty, such as dist/app"
    if path.startswith("/") or ".." in path.split("/"):
        return f"is {show(path)}, and must stay below the working folder"
    return ""
