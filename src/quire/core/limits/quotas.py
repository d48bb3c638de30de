"""What one principal, and the server as a whole, may use at once. Pure; 0 is no limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from quire.core.errors import OverLimit
from quire.core.model import Principal

_MAX_BUCKETS = 10_000  # principals whose rate is remembered; of more, those who have rested are forgotten


@dataclass(frozen=True, kw_only=True)
class Quotas:
    kernels: int = 0  # live ones, of all
    kernels_per_user: int = 0  # of one principal
    runs: int = 0  # under way at once, of all
    runs_per_user: int = 0
    memory_per_user: int = 0  # bytes that a principal's kernels hold together
    min_free_bytes: int = 0  # bytes of the machine's memory that are to stay available
    requests_per_minute: float = 0  # a minute, of one principal
    burst: int = 1  # requests that may come at once

    def over_kernels(self, live: Counter[Principal], who: Principal) -> str:
        """The setting that keeps `who` from one more kernel; "" where none does."""
        if self.kernels_per_user and live[who] >= self.kernels_per_user:
            return "limits.max_kernels_per_user"
        return "limits.max_kernels" if self.kernels and live.total() >= self.kernels else ""


class RateLimiter:
    """How often each principal may ask: so many a minute, and a burst after a rest. A bucket of tokens each."""

    def __init__(self, per_minute: float, burst: int, now: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._burst = burst
        self._now = now  # seconds
        self._buckets: dict[Principal, tuple[float, float]] = {}  # tokens left, and when that was

    def acquire(self, who: Principal) -> None:
        """One request of theirs. Raises OverLimit, with the seconds to wait."""
        if not self._per_minute:
            return
        now = self._now()
        left, at = self._buckets.get(who, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._per_minute / 60)
        if left < 1:
            self._buckets[who] = left, now
            wait = math.ceil((1 - left) * 60 / self._per_minute * 10) / 10
            raise OverLimit(
                f"Too many requests: {self._per_minute:g} a minute may come from one user, {self._burst:,} at once "
                "after a rest (settings limits.requests_per_minute, limits.requests_burst). Nothing was done. "
                f"Call again in {wait:g} s."
            )
        if len(self._buckets) >= _MAX_BUCKETS:
            self._drop_full_buckets(now)
        self._buckets[who] = left - 1, now

    def _drop_full_buckets(self, now: float) -> None:
        rested = self._burst * 60 / self._per_minute
        self._buckets = {who: each for who, each in self._buckets.items() if now - each[1] < rested}
