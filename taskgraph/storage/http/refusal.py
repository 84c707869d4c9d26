"""What is not done over HTTP."""

from taskgraph.model.errors import InvalidInput


def only_the_server(address: str, what: str = "this") -> InvalidInput:
    return InvalidInput(
        f"{what} cannot be done over HTTP ({address}): name the store itself (--store), where that can be reached"
    )
