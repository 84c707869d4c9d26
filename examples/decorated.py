# ruff: noqa: T201 - an example speaks on the terminal
"""Functions as tasks, by `@task`: `python examples/decorated.py`.

Inside `with Graph(…)` a call makes a task, and what it gives may be an argument of further calls, which require it.
What functions print is in the logs of their tasks. `taskgraph worker --python decorated`, started in this folder, runs
such tasks in other processes.
"""

import tempfile

from taskgraph import Client, Graph, task


@task
def split(text: str, parts: int) -> list[str]:
    """Texts of about one length."""
    words = text.split()
    print(f"{len(words)} words")
    return [" ".join(words[number::parts]) for number in range(parts)]


@task(retries=1, timeout=60)
def count(texts: list[str], number: int) -> int:
    """How many words one of the texts has."""
    return len(texts[number].split())


@task(name="add")
async def total(counts: list[int], start: int = 0) -> int:
    """Coroutine functions are tasks too."""
    return sum(counts, start)


def make_graph() -> Graph:
    """Fan out over the parts, fan in to their sum."""
    with Graph(name="words") as graph:
        texts = split("a rose is a rose is a rose", parts=3)
        total([count(texts, number) for number in range(3)])
    return graph


def main() -> None:
    """Run the graph and print what came of it."""
    with tempfile.TemporaryDirectory() as folder, Client.sync(f"sqlite:///{folder}/words.db") as client:
        status = client.run(make_graph())
        print(f"{status.state}: {client.result(status.graph_id, 'add')} words")
        print(f"split printed: {client.logs(status.graph_id, 'split').strip()}")


if __name__ == "__main__":
    main()
