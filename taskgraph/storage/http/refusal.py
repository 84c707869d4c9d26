"""What is not done over HTTP."""

from taskgraph.model.errors import InvalidInput


def only_the_server(address: str, what: str = "this", instead: str = "") -> InvalidInput:
    """instead: what does much the same over HTTP."""
    remedy = "name the store itself (--store), where that can be reached"
    return InvalidInput(f"{what} cannot be done over HTTP ({address}): {remedy}{f', or {instead}' if instead else ''}")
