"""Limits per user and for the whole server. 0 is no limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from quire.core.errors import OverLimit
from quire.core.model import Principal

_MAX_BUCKETS = 10_000  # above that, full ones are dropped


@dataclass(frozen=True, kw_only=True)
class Quotas:
    kernels: int = 0  # live, of all users
    kernels_per_user: int = 0  # of one user
    runs: int = 0  # under way, of all users
    runs_per_user: int = 0
    memory_per_user: int = 0  # bytes of all kernels of one user
    min_free_bytes: int = 0  # of the machine's memory
    requests_per_minute: float = 0  # of one user
    burst: int = 1  # requests at once after a pause

    def over_kernels(self, live: Counter[Principal], who: Principal) -> str:
        """The setting that forbids one more kernel for `who`; "" if none does."""
        if self.kernels_per_user and live[who] >= self.kernels_per_user:
            return "limits.max_kernels_per_user"
        return "limits.max_kernels" if self.kernels and live.total() >= self.kernels else ""


class RateLimiter:
    """Limits the requests per minute of each user, with bursts. A token bucket per user."""

    def __init__(self, per_minute: float, burst: int, now: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._burst = burst
        self._now = now  # seconds
        self._buckets: dict[Principal, tuple[float, float]] = {}  # tokens left, and at what time

    def acquire(self, who: Principal) -> None:
        """Count one request. Raises OverLimit with the seconds to wait."""
        if not self._per_minute:
            return
        now = self._now()
        left, at = self._buckets.get(who, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._per_minute / 60)
        if left < 1:
            self._buckets[who] = left, now
            wait = math.ceil((1 - left) * 60 / self._per_minute * 10) / 10
            raise OverLimit(
                f"Too many requests: one user may send {self._per_minute:g} a minute, and {self._burst:,} at once "
                "after a pause (settings limits.requests_per_minute, limits.requests_burst). Nothing was done. "
                f"Call again in {wait:g} s."
            )
        if len(self._buckets) >= _MAX_BUCKETS:
            self._drop_full_buckets(now)
        self._buckets[who] = left - 1, now

    def _drop_full_buckets(self, now: float) -> None:
        rested = self._burst * 60 / self._per_minute
        self._buckets = {who: bucket for who, bucket in self._buckets.items() if now - bucket[1] < rested}
