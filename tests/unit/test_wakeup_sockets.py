"""The sockets between processes: who is rung, who passes it on, and what happens where there can be none."""

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskgraph.interfaces.app import wakeup_sockets_of
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.clock import SystemClock
from taskgraph.storage.signals.wakeup_sockets import WakeupSockets


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="bell-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


class Process:
    """A sockets, and what it heard; `waits` says whether a receiver of this process waits."""

    def __init__(self, file: Path, *, waits: bool = True, listens: str = "q") -> None:
        self.sockets = WakeupSockets.beside(file, SystemClock())
        self.waits = waits
        self.heard: list[str] = []
        if listens:
            assert self.sockets.listen(listens, self.hear)

    def hear(self, queue: str) -> bool:
        self.heard.append(queue)
        return self.waits


async def settle() -> None:
    """A datagram is there at once: some turns of the loop are enough for it to be read, and passed on."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_ring_is_heard_by_another_process_that_listens_to_the_queue(short: Path) -> None:
    sender, listener = Process(short / "db", listens=""), Process(short / "db")
    other, elsewhere = Process(short / "db", listens="other"), Process(short / "db2")
    sender.sockets.notify("q")
    await settle()
    assert listener.heard == ["q"]
    assert not other.heard
    assert not elsewhere.heard
    for process in (sender, listener, other, elsewhere):
        process.sockets.close()
    assert not (short / "bells").exists()


async def test_as_many_are_rung_as_there_are_messages(short: Path) -> None:
    sender, *listeners = (Process(short / "db") for _ in range(4))
    for count in (1, 2, 3, 100):
        sender.sockets.notify("q", count)
        await settle()
        assert sum(len(each.heard) for each in listeners) == min(count, 3)
        for each in listeners:
            assert len(each.heard) <= 1
            each.heard.clear()
    assert not sender.heard
    for process in (sender, *listeners):
        process.sockets.close()


async def test_sends_of_one_turn_of_the_loop_ring_once(short: Path) -> None:
    sender, listener = Process(short / "db", listens=""), Process(short / "db")
    for _ in range(100):
        sender.sockets.notify("q")
    await settle()
    assert listener.heard == ["q"]
    sender.sockets.close()
    listener.sockets.close()


async def test_who_does_not_wait_passes_the_ring_on(short: Path) -> None:
    sender = Process(short / "db", listens="")
    listeners = [Process(short / "db", waits=False) for _ in range(5)]
    listeners[2].waits = True
    for _ in range(5):
        sender.sockets.notify("q")
        await settle()
    assert len(listeners[2].heard) == 5
    listeners[2].waits = False
    for each in listeners:
        each.heard.clear()
    sender.sockets.notify("q")
    await settle()
    assert [each.heard for each in listeners] == [["q"]] * 5  # all know, and it has come to an end
    for process in (sender, *listeners):
        process.sockets.close()


async def test_sockets_of_the_dead_are_removed_and_passed_over(short: Path) -> None:
    sender, listener = Process(short / "db", listens=""), Process(short / "db")
    (name,) = os.listdir(short / "bells")
    for number in range(3):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            dead.bind(str(short / "bells" / f"{name.partition('.')[0]}.{number}"))
    (short / "bells" / f"{name.partition('.')[0]}.file").touch()
    for _ in range(5):
        sender.sockets.notify("q")
        await settle()
    assert listener.heard == ["q"] * 5
    assert sorted(os.listdir(short / "bells")) == sorted([name, f"{name.partition('.')[0]}.file"])
    sender.sockets.close()
    listener.sockets.close()


async def test_old_sockets_of_the_dead_are_cleared_without_a_ring(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other queues too, and of other stores of the user, whose folder goes with the last one."""
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    listener = Process(short / "db")
    elsewhere = WakeupSockets.of_user("https://a.example", SystemClock())
    assert elsewhere.listen("q", lambda queue: True)
    (short / f"taskgraph-{os.getuid()}-{'0' * 16}").mkdir(0o700)
    folders = [short / "bells", *short.glob("taskgraph-*")]
    kept = {path for folder in folders for path in folder.iterdir()} | {short / "bells" / f"{'0' * 12}.file"}
    (short / "bells" / f"{'0' * 12}.file").touch()
    for folder in folders:
        for number in range(3):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
                dead.bind(str(folder / f"{'0' * 12}.{number}"))
    assert listener.sockets.clear() == 0, "one that is just being bound looks like them"
    for folder in folders:
        for path in (*folder.glob("*"), folder):
            os.utime(path, (0, 0))
    assert listener.sockets.clear() == 9
    assert {path for path in short.rglob("*") if not path.is_dir()} == kept
    assert sorted(folder for folder in folders if folder.exists()) == sorted({path.parent for path in kept})
    listener.sockets.close()
    elsewhere.close()


async def test_a_process_that_stands_still_is_passed_over_once_its_socket_is_full(short: Path) -> None:
    sender, listener = Process(short / "db", listens=""), Process(short / "db")
    (name,) = os.listdir(short / "bells")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as still:
        still.bind(str(short / "bells" / f"{name.partition('.')[0]}.0"))
        for _ in range(5000):
            sender.sockets.notify("q")
            await asyncio.sleep(0)
        await settle()
        listener.heard.clear()
        for _ in range(10):
            sender.sockets.notify("q")
            await settle()
        assert listener.heard == ["q"] * 10
    sender.sockets.close()
    listener.sockets.close()


async def test_a_listener_that_comes_later_is_found_though_the_list_is_kept(short: Path) -> None:
    sender, first = Process(short / "db", listens=""), Process(short / "db", waits=False)
    os.utime(short / "bells", (1, 1))
    sender.sockets.notify("q")
    await settle()
    second = Process(short / "db")
    for _ in range(2):
        sender.sockets.notify("q")
        await settle()
    assert len(second.heard) == 2
    for process in (sender, first, second):
        process.sockets.close()


async def test_who_listens_binds_again_when_its_folder_was_cleared_away(short: Path) -> None:
    sender, listener = Process(short / "db", listens=""), Process(short / "db")
    shutil.rmtree(short / "bells")
    sender.sockets.notify("q")
    await settle()
    assert not listener.heard
    assert listener.sockets.listen("q", listener.hear)
    sender.sockets.notify("q")
    await settle()
    assert listener.heard == ["q"]
    sender.sockets.close()
    listener.sockets.close()
    listener.sockets.close()


async def test_without_a_folder_nobody_hears_and_nobody_is_hindered(short: Path) -> None:
    (short / "bells").touch()
    process = Process(short / "db", listens="")
    assert not process.sockets.listen("q", process.hear)
    process.sockets.notify("q")
    await settle()
    process.sockets.close()
    assert (short / "bells").is_file()


async def test_a_folder_that_others_can_write_to_is_not_used_in_a_shared_place(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    sockets, sender, late = (WakeupSockets.of_user("https://a.table.core.windows.net", SystemClock()) for _ in range(3))
    heard: list[str] = []

    def hear(queue: str) -> bool:
        heard.append(queue)
        return True

    assert sockets.listen("q", hear)
    (folder,) = short.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    sender.notify("q")
    await settle()
    assert heard == ["q"]
    folder.chmod(0o770)
    late.notify("q")
    await settle()
    assert heard == ["q"]
    assert not sender.listen("q", lambda queue: False)
    for each in (late, sender, sockets):
        each.close()
    target = short / "elsewhere"
    target.mkdir(mode=0o700)
    folder.symlink_to(target)
    assert not WakeupSockets.of_user("https://a.table.core.windows.net", SystemClock()).listen("q", lambda queue: False)


async def test_a_path_that_is_too_long_is_replaced_by_a_folder_of_the_user(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    (tmp_path / "link").symlink_to(deep)
    sender, listener = Process(tmp_path / "link" / "db", listens=""), Process(deep / "db")
    sender.sockets.notify("q")
    await settle()
    assert listener.heard == ["q"]
    assert not list(deep.iterdir())
    sender.sockets.close()
    listener.sockets.close()


async def test_no_name_holds_a_key(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    settings = read_settings("AccountName=acc;AccountKey=c2VjcmV0", {}, cwd=short)
    sockets = wakeup_sockets_of(settings, SystemClock())
    assert sockets is not None
    assert not sockets.reaches_all
    assert sockets.listen("taskgraph-events", lambda queue: False)
    # The same account, however it is named: an identity instead of a key.
    sender = wakeup_sockets_of(StoreSettings(table_endpoint="https://acc.table.core.windows.net"), SystemClock())
    assert sender is not None
    names = [str(path) for path in short.rglob("*")]
    assert len(names) == 2
    assert not any("c2VjcmV0" in name or "acc" in name for name in names)
    assert sender._folder == sockets._folder
    sockets.close()
