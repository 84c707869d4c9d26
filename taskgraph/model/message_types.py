"""The types of messages in one table: what each is called, who takes it, and by which span it is asked for.

What this room is for: whatever knows of every type (queues, telemetry, the Functions host) reads it here, so that a new
type is forgotten nowhere. It never reads or writes a message (`messages`).
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class MessageType:
    """One type. asked_as: span of who asks for it, "" for what only handlers and workers send. event: for handlers."""

    name: str
    asked_as: str = ""
    event: bool = True


MESSAGE_TYPES: Final = (
    MessageType("add-tasks", asked_as="extend"),
    MessageType("cancel", asked_as="cancel"),
    MessageType("edit", asked_as="edit"),
    MessageType("hold-back", asked_as="hold-back"),
    MessageType("rerun", asked_as="rerun"),
    MessageType("send-ready"),
    MessageType("set-limit", asked_as="set-limit"),
    MessageType("task-completed"),
    MessageType("task-failed"),
    MessageType("run-tasks", event=False),
)
