"""Limits per user: rates, run slots, kernels."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from quire.core.errors import OverLimit
from quire.core.limits.quotas import Quotas, RateLimiter
from quire.core.model import Principal
from quire.core.runs.queue import RunSlots

ANN, BEN, CAL = Principal("ann"), Principal("ben"), Principal("cal")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_request_after_a_burst_waits_as_long_as_told() -> None:
    clock = Clock()
    rates = RateLimiter(60, 3, clock)
    for _ in range(3):
        rates.acquire(ANN)
    with pytest.raises(OverLimit, match=r"requests_per_minute.*Call again in 1 s"):
        rates.acquire(ANN)
    rates.acquire(BEN)  # who has a bucket of their own
    clock.now += 0.5
    with pytest.raises(OverLimit, match=r"Call again in 0\.5 s"):
        rates.acquire(ANN)
    clock.now += 0.5
    rates.acquire(ANN)
    clock.now += 3600
    for _ in range(3):  # a rest fills the bucket, and no more than that
        rates.acquire(ANN)
    with pytest.raises(OverLimit):
        rates.acquire(ANN)


def test_rate_of_zero_is_no_limit() -> None:
    rates = RateLimiter(0, 1, Clock())
    for _ in range(1000):
        rates.acquire(ANN)


def test_full_buckets_are_dropped() -> None:
    clock = Clock()
    rates = RateLimiter(60, 2, clock)
    for number in range(20_000):
        rates.acquire(Principal(str(number)))
        clock.now += 0.01
    assert len(rates._buckets) <= 10_000


def test_setting_that_forbids_one_more_kernel_is_named() -> None:
    quotas = Quotas(kernels=3, kernels_per_user=2)
    assert quotas.over_kernels(Counter(), ANN) == ""
    assert quotas.over_kernels(Counter({ANN: 2}), ANN) == "limits.max_kernels_per_user"
    assert quotas.over_kernels(Counter({ANN: 2}), BEN) == ""
    assert quotas.over_kernels(Counter({ANN: 2, BEN: 1}), BEN) == "limits.max_kernels"
    assert Quotas().over_kernels(Counter({ANN: 1000}), ANN) == ""


async def test_users_take_turns_and_runs_of_a_user_keep_their_order() -> None:
    slots, order = RunSlots(limit=1), []
    assert slots.try_acquire(ANN)

    async def run(who: Principal, number: int) -> None:
        await slots.acquire(who)
        order.append((who, number))
        await anyio.lowlevel.checkpoint()
        slots.release(who)

    async with anyio.create_task_group() as group:
        for who, number in [(ANN, 1), (ANN, 2), (ANN, 3), (BEN, 1), (BEN, 2), (CAL, 1)]:
            group.start_soon(run, who, number)
            await anyio.wait_all_tasks_blocked()
        assert order == []
        slots.release(ANN)
    assert order == [(ANN, 1), (BEN, 1), (CAL, 1), (ANN, 2), (BEN, 2), (ANN, 3)]
    assert slots.try_acquire(CAL)  # and nothing is left over


async def test_user_at_the_limit_does_not_block_others() -> None:
    slots = RunSlots(limit=3, limit_per_user=2)
    assert slots.try_acquire(ANN) and slots.try_acquire(ANN)
    assert not slots.try_acquire(ANN)
    assert "max_runs_per_user" in slots.wait_reason(ANN)
    async with anyio.create_task_group() as group:
        group.start_soon(slots.acquire, ANN)
        await anyio.wait_all_tasks_blocked()
        assert slots.try_acquire(BEN)
        assert not slots.try_acquire(CAL)
        assert "max_runs)" in slots.wait_reason(CAL)
        slots.release(BEN)  # which is no place for Ann
        assert slots.try_acquire(CAL)
        slots.release(ANN)
    assert not slots.try_acquire(ANN)


async def test_cancelled_wait_takes_no_slot() -> None:
    slots = RunSlots(limit=1)
    assert slots.try_acquire(ANN)
    with anyio.move_on_after(0):
        await slots.acquire(BEN)
    slots.release(ANN)
    assert slots.try_acquire(CAL)

    async def run() -> None:
        await slots.acquire(BEN)
        slots.release(BEN)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        slots.release(CAL)  # the place is Ben's in the moment he gives up
        group.cancel_scope.cancel()
    assert slots.try_acquire(CAL)


async def test_free_slot_is_taken_without_waiting() -> None:
    slots = RunSlots(limit=1)
    assert slots.try_acquire(ANN) and not slots.try_acquire(BEN)
    slots.release(ANN)
    with anyio.fail_after(5):
        await slots.acquire(BEN)
