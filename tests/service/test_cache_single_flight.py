import asyncio

import pytest

from glow_service.cache import SingleFlight
from glow_service.errors import DeadlineError, OverloadedError
from tests.service.asking import watched

Value = tuple[bytes, bool]


class Maker:
    """Makes a value when the test says so, and counts how often it was asked."""

    def __init__(self, *outcomes: bytes | BaseException) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0
        self.gate = asyncio.Event()

    async def __call__(self) -> Value:
        """The next outcome, or the last for ever."""
        outcome = self.outcomes[min(self.calls, len(self.outcomes) - 1)]
        self.calls += 1
        await self.gate.wait()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome, False


async def start(flight: SingleFlight, maker: Maker, count: int) -> list[asyncio.Task[Value]]:
    """That many callers of one key, the first leading, the others in line behind it in this order."""
    tasks = [asyncio.create_task(flight.run(b"key", maker)) for _ in range(count)]
    await settle()
    return tasks


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@watched
async def test_callers_of_one_key_share_one_making() -> None:
    flight, maker = SingleFlight(), Maker(b"value")
    tasks = await start(flight, maker, 50)
    maker.gate.set()
    assert await asyncio.gather(*tasks) == [(b"value", False)] + [(b"value", True)] * 49
    assert maker.calls == 1
    assert len(flight) == 0


@watched
async def test_callers_of_different_keys_do_not_wait_for_one_another() -> None:
    flight, slow, fast = SingleFlight(), Maker(b"slow"), Maker(b"fast")
    fast.gate.set()
    waiting = asyncio.create_task(flight.run(b"slow", slow))
    assert await flight.run(b"fast", fast) == (b"fast", False)
    assert not waiting.done()
    slow.gate.set()
    await waiting


@watched
async def test_a_value_is_not_kept_after_its_flight() -> None:
    flight, maker = SingleFlight(), Maker(b"1", b"2")
    maker.gate.set()
    assert [await flight.run(b"key", maker) for _ in range(2)] == [(b"1", False), (b"2", False)]


@watched
async def test_an_error_is_every_waiting_callers_and_nobodys_after() -> None:
    flight, maker = SingleFlight(), Maker(OverloadedError("full"), b"value")
    tasks = await start(flight, maker, 4)
    maker.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in found] == [OverloadedError] * 4
    assert maker.calls == 1 and await flight.run(b"key", maker) == (b"value", False)


@watched
async def test_a_follower_takes_over_from_a_leader_that_is_cancelled() -> None:
    flight, maker = SingleFlight(), Maker(b"lost", b"value")
    tasks = await start(flight, maker, 4)
    tasks[0].cancel()
    await settle()
    assert maker.calls == 2
    maker.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [(b"value", False), (b"value", True), (b"value", True)]
    assert len(flight) == 0


@pytest.mark.parametrize("error", [DeadlineError("late"), TimeoutError()])
@watched
async def test_the_leaders_own_deadline_is_not_the_followers(error: Exception) -> None:
    flight, maker = SingleFlight(), Maker(error, b"value")
    tasks = await start(flight, maker, 3)
    maker.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert found == [error, (b"value", False), (b"value", True)]


@watched
async def test_a_follower_that_leaves_harms_nobody() -> None:
    flight, maker = SingleFlight(), Maker(b"value")
    tasks = await start(flight, maker, 4)
    tasks[2].cancel()
    await settle()
    maker.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[2], asyncio.CancelledError)
    assert [found[0], found[1], found[3]] == [(b"value", False), (b"value", True), (b"value", True)]
    assert maker.calls == 1


@watched
async def test_a_follower_keeps_its_own_deadline() -> None:
    flight, maker = SingleFlight(), Maker(b"value")
    (leader,) = await start(flight, maker, 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await flight.run(b"key", maker)
    maker.gate.set()
    assert await leader == (b"value", False)


@watched
async def test_the_lead_passes_over_followers_that_left() -> None:
    flight, maker = SingleFlight(), Maker(b"value")
    tasks = await start(flight, maker, 4)
    tasks[1].cancel()
    tasks[2].cancel()
    await settle()
    tasks[0].cancel()
    await settle()
    maker.gate.set()
    assert await tasks[3] == (b"value", False)


@watched
async def test_a_follower_cancelled_in_the_moment_it_is_to_lead_passes_the_lead_on() -> None:
    flight, maker = SingleFlight(), Maker(b"value")
    tasks = await start(flight, maker, 3)
    tasks[0].cancel()
    await asyncio.sleep(0)  # the leader has handed over; its heir has not run yet
    assert maker.calls == 1
    tasks[1].cancel()
    await settle()
    maker.gate.set()
    assert await tasks[2] == (b"value", False)
    assert maker.calls == 2
    assert len(flight) == 0


@pytest.mark.parametrize("outcome", [b"value", OverloadedError("full")])
@watched
async def test_a_follower_cancelled_in_the_moment_of_the_outcome_is_only_cancelled(
    outcome: bytes | Exception,
) -> None:
    flight, maker = SingleFlight(), Maker(outcome)
    followers: list[asyncio.Task[Value]] = []

    async def lead_and_cancel() -> None:
        try:
            await flight.run(b"key", maker)
        finally:  # the follower has its outcome, and has not run yet
            followers[0].cancel()

    leader = asyncio.create_task(lead_and_cancel())
    await settle()
    followers = await start(flight, maker, 1)
    maker.gate.set()
    found = await asyncio.gather(leader, *followers, return_exceptions=True)
    assert found[0] in (outcome, None) and isinstance(found[1], asyncio.CancelledError)
    assert maker.calls == 1
    assert len(flight) == 0


@watched
async def test_when_everyone_leaves_nothing_remains() -> None:
    flight, maker = SingleFlight(), Maker(b"value")
    tasks = await start(flight, maker, 5)
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, asyncio.CancelledError) for error in found)
    assert len(flight) == 0
