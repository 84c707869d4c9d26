"""The commands `poison list` and `poison replay`: messages that were set aside."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.output import count, moment, safe
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.engine.poison import PoisonMessage
    from taskgraph.interfaces.app import App

_SHOWN: Final = 100
_BODY_CHARS_SHOWN: Final = 120


@command("taskgraph poison list", "taskgraph poison list --limit 1000 --json")
def list_(
    session: Session,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Show so many at most, in the order of their keys.")
    ] = _SHOWN,
    after: Annotated[str, typer.Option("--after", metavar="KEY", help="Go on behind this key.")] = "",
) -> None:
    """List messages that could not be handled and were set aside."""

    async def listed(app: "App") -> "Sequence[PoisonMessage]":
        return [each for each in await app.poison.list() if each.key > after]

    everything = session.open(listed)
    found = everything[:limit]
    output = session.output
    if len(everything) > limit:
        more = len(everything) - limit
        output.warn(f"{more:,} more are set aside: taskgraph poison list --after {shlex.quote(found[-1].key)}")
    if session.answered(views.poison_messages, found):
        return
    if not found:
        output.say("no message is set aside")
    for each in found:
        _print_poison(session, each)


def _print_poison(session: Session, one: "PoisonMessage") -> None:
    out = session.output.out
    out.line(out.paint(safe(one.key), "bold"))
    times = count(one.failures, "failure")
    out.line(f"  {out.paint('since', 'dim')}   {moment(one.set_aside)}, after {times}")
    out.line(f"  {out.paint('reason', 'dim')}  {safe(one.reason)}")
    body = one.body if len(one.body) <= _BODY_CHARS_SHOWN else one.body[:_BODY_CHARS_SHOWN] + "…"
    out.line(f"  {out.paint('body', 'dim')}    {safe(body)}")


@command("taskgraph poison replay --all", "taskgraph poison replay taskgraph-events:4711")
def replay(
    session: Session,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="The key of a message, from the list.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay every message that is set aside.")] = False,
) -> None:
    """Put messages back on their queue, once what kept them from being handled is mended."""
    if (key is None) != everything:
        raise InvalidInput("name the KEY of one message, or say --all")

    async def replayed(app: "App") -> "list[PoisonMessage]":
        from taskgraph.interfaces.operations.checks import asked_by

        keys = [each.key for each in await app.poison.list()] if key is None else [key]
        return [await app.poison.replay(each, asked_by()) for each in keys]

    found = session.open(replayed)
    output = session.output
    if session.answered(views.replayed, found):
        return
    for each in found:
        output.data(each.key)
    output.say(f"{count(len(found), 'message')} put back")
