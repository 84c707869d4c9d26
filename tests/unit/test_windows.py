"""What a process sends to workers now, and what later."""

import random
from collections import Counter

import pytest

from taskgraph.model import limits
from taskgraph.protocol.dispatch_windows import ReadyBatch, Windows

QUEUE = ("default", "normal")


def runs(name: str, count: int, first: int = 0) -> list[tuple[str, int]]:
    return [(f"{name}{n}", 0) for n in range(first, first + count)]


def test_so_many_go_out_as_the_window_holds_and_the_rest_as_they_are_heard_of() -> None:
    windows = Windows(start=64)
    tasks = runs("a", 100)
    assert windows.offer("g", QUEUE, tasks, 0.0) == (tasks[:64], 36)
    assert (windows.waits, windows.unsent("g"), windows.graphs) == (True, 36, ["g"])
    assert windows.on_results("g", [task for task, _ in tasks[:20]], 1.0) == []  # not worth a message yet
    assert windows.on_results("g", [task for task, _ in tasks[20:32]], 1.0) == [
        ReadyBatch("g", *QUEUE, tuple(tasks[64:96]))
    ]
    assert windows.on_results("g", [task for task, _ in tasks[32:64]], 5.0) == [
        ReadyBatch("g", *QUEUE, tuple(tasks[96:]))
    ]
    assert not windows.waits


def test_graphs_share_a_window_and_a_new_one_does_not_wait_for_another() -> None:
    windows = Windows(start=128)
    assert len(windows.offer("first", QUEUE, runs("a", 1_000), 0.0)[0]) == 128
    assert len(windows.offer("second", QUEUE, runs("b", 1_000), 0.0)[0]) == 64
    now = 10.0
    sent: Counter[str] = Counter()
    flying = {"first": runs("a", 128), "second": runs("b", 64)}
    for _ in range(200):
        graph = max(flying, key=lambda each: len(flying[each]))
        heard, flying[graph] = flying[graph][:8], flying[graph][8:]
        for batch in windows.on_results(graph, [task for task, _ in heard], now):
            sent[batch.graph] += len(batch.tasks)
            flying[batch.graph] += batch.tasks
        assert {name: len(tasks) for name, tasks in flying.items() if len(tasks) > 128} == {}
        now += 1.0
    assert 0.4 <= sent["second"] / sent.total() <= 0.6


def test_a_window_grows_when_it_comes_back_at_once_and_shrinks_when_workers_do_not_take_it() -> None:
    quick = Windows(start=64)
    flying, _ = quick.offer("g", QUEUE, runs("a", 1_000), 0.0)
    for batch in quick.on_results("g", [task for task, _ in flying[:32]], 0.1):
        assert len(batch.tasks) == 256 - 32
    slow = Windows(start=256)
    flying, _ = slow.offer("g", QUEUE, runs("a", 2_000), 0.0)
    now = 0.0
    for _ in range(6):
        now += 20.0
        for sample in slow.to_look_at(now):
            assert slow.looked(sample, waits=True, now=now) == []
        half, flying = flying[: len(flying) // 2], flying[len(flying) // 2 :]
        for batch in slow.on_results("g", [task for task, _ in half], now):
            flying += batch.tasks
    assert len(flying) <= limits.WINDOW_MIN


def test_workers_that_take_long_tasks_get_more_although_nothing_is_heard_of_them() -> None:
    windows = Windows(start=64)
    windows.offer("g", QUEUE, runs("a", 1_000), 0.0)
    assert windows.to_look_at(1.0) == []
    (sample,) = windows.to_look_at(2.0)
    (batch,) = windows.looked(sample, waits=False, now=2.0)
    assert len(batch.tasks) > 64
    assert windows.to_look_at(3.0) == []
    (sample,) = windows.to_look_at(4.0)
    assert windows.looked(sample, waits=True, now=4.0) == []
    looks = [
        now for now in range(5, 60) if [windows.looked(each, waits=True, now=now) for each in windows.to_look_at(now)]
    ]
    assert looks == [8, 16, 32, 48]  # ever more seldom, as nobody wants more


def test_a_look_at_what_was_heard_of_meanwhile_says_nothing_of_the_others() -> None:
    windows = Windows(start=64)
    windows.offer("g", QUEUE, runs("a", 1_000), 0.0)
    (sample,) = windows.to_look_at(2.0)
    windows.on_results("g", [sample.task_id], 2.0)  # while the answer is under way
    still = [each for each in runs("a", 64) if windows.knows("g", *each) and each[0] != sample.task_id]
    assert len(still) == 63
    windows.looked(sample, waits=False, now=2.0)
    assert windows.offer("g", QUEUE, still, 2.0) == (still, 0), "they are with workers, and are reminded of"


def test_what_is_known_is_not_sent_twice_but_as_a_reminder() -> None:
    windows = Windows(start=2)
    assert windows.offer("g", QUEUE, [("a", 0), ("b", 0), ("c", 0)], 0.0)[0] == [("a", 0), ("b", 0), ("c", 0)]  # 32
    windows = Windows(start=limits.WINDOW_MIN)
    tasks = runs("a", limits.WINDOW_MIN + 2)
    windows.offer("g", QUEUE, tasks, 0.0)
    assert windows.offer("g", QUEUE, tasks, 0.0) == (tasks[:-2], 0)
    assert windows.unsent("g") == 2
    (last, _) = tasks[-1]
    assert windows.offer("g", ("default", "high"), [(last, 0)], 0.0) == ([(last, 0)], 0)  # it has aged
    assert windows.unsent("g") == 1
    assert windows.offer("g", QUEUE, [(tasks[0][0], 1)], 0.0) == ([], 1)  # its next run
    assert windows.knows("g", tasks[0][0], 1)
    assert not windows.knows("g", tasks[0][0], 0)


def test_what_could_not_be_sent_goes_first_the_next_time() -> None:
    windows = Windows(start=64)
    tasks = runs("a", 100)
    windows.offer("g", QUEUE, tasks, 0.0)
    (batch,) = windows.on_results("g", [task for task, _ in tasks[:40]], 5.0)
    windows.returned(batch)
    assert windows.fill() == [batch]


def test_what_will_be_sent_later_needs_no_reminder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNSENT_MAX", 30)
    windows = Windows(start=64)
    windows.offer("g", QUEUE, runs("a", 70), 0.0)
    assert [windows.will_send("g", f"a{n}", 0) for n in (0, 63, 64, 69, 70)] == [False, False, True, True, False]
    assert not windows.will_send("g", "a64", 1), "of another run nothing is known"
    windows.offer("g", QUEUE, runs("a", 70, 70), 0.0)
    assert [windows.will_send("g", f"a{n}", 0) for n in (0, 63, 64, 139)] == [False, False, True, True]
    assert not windows.will_send("other", "a64", 0)


def test_what_is_more_than_can_be_remembered_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNSENT_MAX", 10)
    windows = Windows(start=64)
    windows.offer("g", QUEUE, runs("a", 100), 0.0)
    assert (windows.unsent("g"), windows.more, windows.graphs) == (10, {"g"}, ["g"])
    windows.forget("g")
    assert (windows.waits, windows.graphs) == (False, [])


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_everything_is_sent_and_nothing_is_left_over(seed: int) -> None:
    """Some is never heard of, some comes twice, graphs end: looks and batches bring out all that is left."""
    chance = random.Random(seed)
    windows = Windows(start=chance.choice((32, 64, 256)))
    now, wanted, sent = 0.0, set(), set()
    flying: list[tuple[str, tuple[str, int]]] = []

    def out(graph: str, tasks: list[tuple[str, int]] | tuple[tuple[str, int], ...]) -> None:
        for task in tasks:
            sent.add((graph, task))
            flying.append((graph, task))

    for n in range(300):
        now += chance.random() * 3
        graph = chance.choice(("g", "h", "i"))
        match chance.randrange(6):
            case 0:
                tasks = runs(f"{graph}{n}-", chance.randrange(1, 200))
                wanted.update((graph, task) for task in tasks)
                out(graph, windows.offer(graph, ("default", chance.choice(("normal", "low"))), tasks, now)[0])
            case 1 | 2:
                chance.shuffle(flying)
                heard, flying[:] = flying[:60], flying[60:]
                for each in ("g", "h", "i"):
                    for batch in windows.on_results(each, [task for own, (task, _) in heard if own == each], now):
                        out(batch.graph, batch.tasks)
            case 3:
                del flying[: chance.randrange(10)]  # nobody ever hears of these
            case _:
                for sample in windows.to_look_at(now):
                    for batch in windows.looked(sample, waits=chance.random() < 0.3, now=now):
                        out(batch.graph, batch.tasks)
    for _ in range(10_000):
        if not windows.waits:
            break
        now += 20.0
        for sample in windows.to_look_at(now):
            for batch in windows.looked(sample, waits=False, now=now):
                out(batch.graph, batch.tasks)
        for batch in windows.fill():
            out(batch.graph, batch.tasks)
    assert not windows.waits, seed
    assert sent == wanted, seed
