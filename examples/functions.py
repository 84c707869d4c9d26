# ruff: noqa: T201 - an example speaks on the terminal
"""Tasks that are Python functions, run in this process: `python examples/functions.py`.

The graph lives in a SQLite file of a temporary folder. Each function gets what its task says under `arguments`; what
it returns is the task's result. A function that has a parameter `context` is told which run of which task it is.
"""

import asyncio
import tempfile

from taskgraph import Client, Graph, Registry
from taskgraph.worker.executors import Work

tasks = Registry()
words: dict[str, int] = {}  # the functions share this process, so they may share memory too

TEXTS = {
    "rose": "A rose is a rose is a rose",
    "whale": "Call me Ishmael",
    "tree": "I think that I shall never see a poem lovely as a tree",
}


@tasks.register("count")
def count(text: str) -> int:
    """An ordinary function runs in a thread of its own."""
    return len(set(text.lower().split()))


@tasks.register("collect")
async def collect(name: str, text: str, context: Work) -> None:
    """A coroutine function runs on the worker's own loop."""
    await asyncio.sleep(0)
    if name == "whale" and context.run == 0:
        raise ConnectionError("the whale has dived")  # a failure: the task has one rerun
    words[name] = len(text.split())


@tasks.register("total")
def total() -> dict[str, int]:
    """Whatever JSON can hold can be a result."""
    return {"texts": len(words), "words": sum(words.values())}


def make_graph() -> Graph:
    """Fan out over the texts, fan in to the total."""
    graph = Graph(name="words", description="Counts words, by functions")
    last = graph.task("total", call="total")
    for name, text in TEXTS.items():
        graph.task(f"count {name}", call="count", arguments={"text": text})
        graph.task(f"collect {name}", call="collect", arguments={"name": name, "text": text}, reruns=1) >> last
    return graph


async def main() -> None:
    """Run the graph and print what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        async with Client(f"sqlite:///{folder}/words.db") as client:
            status = await client.run(make_graph(), callables=tasks)
            print(f"{status.state}: {status.counts['completed']} of {status.tasks} tasks completed")
            for task in await client.tasks(status.graph_id):
                print(f"{task.label}: run {task.run}, result {await client.result(status.graph_id, task.label)}")


if __name__ == "__main__":
    asyncio.run(main())
