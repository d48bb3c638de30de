"""`%time`, `%timeit` and `%prun`: how long code takes, and where."""

from __future__ import annotations

import cProfile
import gc
import io
import math
import pstats
import time as clocks
import timeit as timers
from typing import Any

from quire.worker.shim import options, running
from quire.worker.shim.errors import UsageError
from quire.worker.shim.registry import line_and_cell
from quire.worker.shim.times import spoken

_ENOUGH = 0.2  # seconds that a run of loops should take


@line_and_cell("time", raw=True)
def time(shell: Any, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Any:
    """Run code once and say how long it took."""
    flags, rest = options.leading(line, long=("no-raise-error",)) if line.startswith("--") else ({}, line)
    if cell is not None and rest.strip():
        raise UsageError("%%time takes its code from the lines below it.")
    tree, name = running.parsed(shell.transform(rest if cell is None else cell), "timed")
    codes = running.compiled(shell.transform_ast(tree), name)
    local = None if local_ns is shell.user_ns else local_ns
    begun, used = clocks.perf_counter(), _used()
    try:
        values = list(running.run(codes, shell.user_ns, shell.wait_for, local))
    except Exception:
        if "no-raise-error" not in flags:
            _say_time(begun, used)
            raise
        shell.showtraceback()
        values = []
    _say_time(begun, used)
    return values[-1] if values else None


time.needs_local_scope = True  # type: ignore[attr-defined]


def _used() -> tuple[float, float]:
    try:
        import resource
    except ImportError:  # in WebAssembly, where nothing is the system's
        return clocks.process_time(), 0.0
    here = resource.getrusage(resource.RUSAGE_SELF)
    return here.ru_utime, here.ru_stime


def _say_time(begun: float, used: tuple[float, float]) -> None:
    wall = clocks.perf_counter() - begun
    user, system = (now - then for now, then in zip(_used(), used, strict=True))
    print(f"CPU times: user {spoken(user)}, sys: {spoken(system)}, total: {spoken(user + system)}")
    print(f"Wall time: {spoken(wall)}")


class TimeitResult:
    """What `%timeit -o` gives."""

    def __init__(
        self, loops: int, repeat: int, best: float, worst: float, all_runs: list[float], precision: int
    ) -> None:
        self.loops = loops
        self.repeat = repeat
        self.best = best
        self.worst = worst
        self.all_runs = all_runs
        self.compile_time = 0.0
        self._precision = precision
        self.timings = [each / loops for each in all_runs]

    @property
    def average(self) -> float:
        return math.fsum(self.timings) / len(self.timings)

    @property
    def stdev(self) -> float:
        mean = self.average
        return math.sqrt(math.fsum((each - mean) ** 2 for each in self.timings) / len(self.timings))

    def __str__(self) -> str:
        runs = f"{len(self.all_runs)} run{'s' if len(self.all_runs) != 1 else ''}"
        loops = f"{self.loops:,} loop{'s' if self.loops != 1 else ''}"
        return (
            f"{spoken(self.average, self._precision)} ± {spoken(self.stdev, self._precision)} per loop "
            f"(mean ± std. dev. of {runs}, {loops} each)"
        )

    def _repr_pretty_(self, p: Any, cycle: bool) -> None:
        p.text(f"<TimeitResult : {self}>")


@line_and_cell("timeit", raw=True)
def timeit(
    shell: Any, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None
) -> TimeitResult | None:
    """Run code many times: -n loops, -r runs, -p digits, -q says nothing, -o gives the result, -v NAME keeps it."""
    flags, rest = options.leading(line, flags="tcqo", valued="nrpv")
    statement, setup = (rest, "pass") if cell is None else (cell, rest or "pass")
    if not statement.strip():
        return None
    names = shell.user_ns if local_ns is None or local_ns is shell.user_ns else {**shell.user_ns, **local_ns}
    clock = clocks.process_time if "c" in flags else clocks.perf_counter
    timer = timers.Timer(shell.transform(statement), shell.transform(setup), clock, globals=names)
    repeat = int(flags.get("r", 7))
    collects = gc.isenabled()
    number = int(flags.get("n", 0)) or _loops(timer)
    runs = timer.repeat(repeat=max(1, repeat), number=number)
    if collects:
        gc.enable()
    result = TimeitResult(number, repeat, min(runs) / number, max(runs) / number, runs, int(flags.get("p", 3)))
    if "q" not in flags:
        _say_timeit(result)
    if "v" in flags:
        shell.user_ns[flags["v"]] = result
    return result if "o" in flags else None


timeit.needs_local_scope = True  # type: ignore[attr-defined]


def _loops(timer: timers.Timer) -> int:
    for power in range(10):
        if timer.timeit(10**power) >= _ENOUGH:
            break
    return int(10**power)


def _say_timeit(result: TimeitResult) -> None:
    if result.worst > 4 * result.best and result.best > 0 and result.worst > 1e-6:
        print(
            f"The slowest run took {result.worst / result.best:0.2f} times longer than the fastest: "
            "something may have been cached."
        )
    print(result)


@line_and_cell("prun", raw=True)
def prun(shell: Any, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Any:
    """Run code under cProfile: -s column, -l lines or pattern, -q says nothing, -r gives it, -T and -D write files."""
    flags, rest = options.leading(line, flags="rq", valued="slTD")
    tree, name = running.parsed(shell.transform(rest if cell is None else f"{rest}\n{cell}"), "profiled")
    codes = running.compiled(tree, name, "none")
    profile = cProfile.Profile()
    try:
        with profile:
            list(running.run(codes, shell.user_ns, shell.wait_for, None if local_ns is shell.user_ns else local_ns))
    except SystemExit:
        print("The code that was profiled ended with SystemExit.")
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text).strip_dirs().sort_stats(flags.get("s", "time"))
    limit = flags.get("l", "")
    stats.print_stats(*([] if not limit else [int(limit) if limit.isdigit() else limit]))
    if "q" not in flags:
        print(text.getvalue())
    if "D" in flags:
        profile.dump_stats(flags["D"])
    if "T" in flags:
        with open(flags["T"], "w", encoding="utf-8") as file:
            file.write(text.getvalue())
    return stats if "r" in flags else None


prun.needs_local_scope = True  # type: ignore[attr-defined]
