"""The functions that the tasks of the graph call, each by its name."""


def load(count: int) -> list[int]:
    """Arguments are those of the task's payload; what is returned must be JSON, and is the task's result."""
    return list(range(1, count + 1))


def squares(numbers: list[int]) -> list[int]:
    """A task takes the results of others as {$result: label} among its arguments."""
    return [number**2 for number in numbers]


def total(numbers: list[int]) -> dict[str, int]:
    """What is raised here fails the run; the task runs again as often as its "reruns" says."""
    return {"count": len(numbers), "total": sum(numbers)}
