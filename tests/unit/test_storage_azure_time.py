"""Processes whose clock is off go by the time of the storage service."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from yarl import URL

from taskgraph.storage.azure_pool import Answer
from taskgraph.storage.azure_signing import signer_for
from taskgraph.storage.azure_time import ServiceClock
from taskgraph.storage.azure_wire import Wire
from tests.manual_clock import ManualClock

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
YEAR = 366 * 86_400.0


class JumpingClock(ManualClock):
    """A machine whose time of day is set anew; its steady clock goes on."""

    off = timedelta()

    def now(self) -> datetime:
        return super().now() + self.off


def clock_that_is_off(seconds: float) -> tuple[JumpingClock, ServiceClock]:
    machine = JumpingClock(NOON)
    machine.off = timedelta(seconds=seconds)
    return machine, ServiceClock(machine)


def date(machine: JumpingClock) -> str:
    return format_datetime(ManualClock.now(machine), usegmt=True)


def off_by(machine: JumpingClock, clock: ServiceClock) -> float:
    return (clock.now() - ManualClock.now(machine)).total_seconds()


@pytest.mark.parametrize("seconds", [YEAR, 86_400.0, 3_600.0, 11.5, -11.5, -3_600.0, -86_400.0, -YEAR])
def test_a_clock_that_is_off_gives_way_to_the_service(seconds: float, caplog: pytest.LogCaptureFixture) -> None:
    machine, clock = clock_that_is_off(seconds)
    assert off_by(machine, clock) == seconds, "nothing was heard"
    assert clock.heard(date(machine), clock.monotonic())
    machine.advance(5_000)
    assert abs(off_by(machine, clock)) <= 1
    assert not clock.heard(date(machine), clock.monotonic())
    (record,) = caplog.records
    assert ("ahead of" if seconds > 0 else "behind") in record.getMessage()


@pytest.mark.parametrize("seconds", [0.0, 9.0, -9.0])
def test_a_clock_that_agrees_counts_as_it_is(seconds: float, caplog: pytest.LogCaptureFixture) -> None:
    machine, clock = clock_that_is_off(seconds)
    assert not clock.heard(date(machine), clock.monotonic())
    assert off_by(machine, clock) == seconds
    assert not caplog.records


@pytest.mark.parametrize("seconds", [YEAR, -YEAR])
def test_a_jump_in_between_moves_nothing(seconds: float) -> None:
    machine, clock = clock_that_is_off(0.0)
    clock.heard(date(machine), clock.monotonic())
    machine.advance(60)
    machine.off = timedelta(seconds=seconds)
    assert abs(off_by(machine, clock)) <= 1
    machine.off = timedelta()
    assert off_by(machine, clock) == 0


@pytest.mark.parametrize("text", ["", "soon", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_what_is_no_time_is_passed_over(text: str) -> None:
    machine, clock = clock_that_is_off(YEAR)
    assert not clock.heard(text, clock.monotonic())
    assert off_by(machine, clock) == YEAR


def test_an_answer_that_took_long_says_nothing_of_now() -> None:
    machine, clock = clock_that_is_off(0.0)
    began, written = clock.monotonic(), date(machine)
    machine.advance(30)
    assert not clock.heard(written, began)
    assert off_by(machine, clock) == 0


class Door:
    """A service that refuses what is signed by another time than its own, as the cloud does."""

    def __init__(self, machine: JumpingClock, minutes: float) -> None:
        self.machine = machine
        self.slack = timedelta(minutes=minutes)
        self.asked = 0

    async def exchange(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, read_seconds: float
    ) -> Answer:
        self.asked += 1
        signed = datetime.strptime(headers["x-ms-date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
        fine = abs(signed - ManualClock.now(self.machine)) <= self.slack
        return Answer(200 if fine else 403, {"Date": date(self.machine)}, b"")

    async def close(self) -> None:
        """See Transport."""


@pytest.fixture
def machine() -> JumpingClock:
    return JumpingClock(NOON)


def wire(machine: JumpingClock, minutes: float) -> tuple[Door, Wire]:
    clock = ServiceClock(machine)
    credential = AzureNamedKeyCredential("account", base64.b64encode(b"k").decode())
    door = Door(machine, minutes)
    return door, Wire("https://here", signer_for(credential, "https://here", "table", clock), door, clock)


async def test_what_was_signed_by_a_clock_that_is_off_is_signed_again(machine: JumpingClock) -> None:
    machine.off = timedelta(days=1)
    door, asking = wire(machine, 15)
    for asked in (2, 3, 4):
        await asking.ask("GET", "/t", (200,))
        assert door.asked == asked, "once alone is it turned away"
        machine.advance(60)


async def test_what_is_refused_for_another_reason_is_not_asked_again(machine: JumpingClock) -> None:
    door, asking = wire(machine, -1)
    with pytest.raises(HttpResponseError):
        await asking.ask("GET", "/t", (200,))
    assert door.asked == 1
