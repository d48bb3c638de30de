"""Save and restore settings of the process as plain data. Notes name settings that are code."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import sys
from typing import Any

_KERNEL_SIGNALS = {signal.SIGINT, signal.SIGXCPU, signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP}  # set by Quire
_LIMITS = ("NOFILE", "CORE", "FSIZE", "STACK")  # memory and processor time are limited by Quire
_FIELDS = ("delimiter", "quotechar", "doublequote", "escapechar", "lineterminator", "quoting")
_DIALECT = (*_FIELDS, "skipinitialspace", "strict")
_STANDARD = {
    "excel": (",", '"', True, None, "\r\n", 0, False, False),
    "excel-tab": ("\t", '"', True, None, "\r\n", 0, False, False),
    "unix": (",", '"', True, None, "\n", 1, False, False),
}
_FIELD_LIMIT = 131_072  # default limit of csv fields, in characters


def collector() -> list[Any]:
    """Whether the garbage collector is on, its thresholds and debugging flags."""
    return [gc.isenabled(), list(gc.get_threshold()), gc.get_debug()]


def put_collector(taken: list[Any]) -> None:
    on, thresholds, flags = taken
    gc.set_threshold(*thresholds)
    gc.set_debug(flags)
    gc.enable() if on else gc.disable()


def switch_interval() -> float:
    """In seconds, rounded to microseconds, since Python truncates and each restart would lose one."""
    return round(sys.getswitchinterval(), 6)


def put_switch_interval(seconds: float) -> None:
    sys.setswitchinterval(seconds + 5e-7)


def umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def csv_dialects() -> dict[str, Any] | None:
    """Added, changed and removed dialects, and the limit of fields."""
    csv = sys.modules.get("csv")
    if not hasattr(csv, "unix_dialect"):  # not there, or being imported
        return None
    assert csv is not None
    now = {name: tuple(getattr(csv.get_dialect(name), field) for field in _DIALECT) for name in csv.list_dialects()}
    changed = {name: fields for name, fields in now.items() if _STANDARD.get(name) != fields}
    removed = [name for name in _STANDARD if name not in now]
    limit = csv.field_size_limit()
    differs = changed or removed or limit != _FIELD_LIMIT
    return {"set": changed, "removed": removed, "limit": limit} if differs else None


def put_csv_dialects(taken: dict[str, Any]) -> None:
    csv = importlib.import_module("csv")
    for name, fields in taken["set"].items():
        csv.register_dialect(name, **dict(zip(_DIALECT, fields, strict=True)))
    for name in taken["removed"]:
        csv.unregister_dialect(name)
    csv.field_size_limit(taken["limit"])


def socket_timeout() -> float | None:
    """The default timeout of sockets."""
    timeout = getattr(sys.modules.get("socket"), "getdefaulttimeout", lambda: None)()
    return timeout if type(timeout) is float else None


def put_socket_timeout(seconds: float) -> None:
    importlib.import_module("socket").setdefaulttimeout(seconds)


def signal_handlers() -> dict[int, str]:
    """The handler of each signal: SIG_DFL, SIG_IGN or "code"."""
    found = {}
    for number in signal.valid_signals() - _KERNEL_SIGNALS:
        handler = signal.getsignal(number)
        found[int(number)] = handler.name if isinstance(handler, signal.Handlers) else "code" if handler else "SIG_DFL"
    return found


def signal_handlers_since(began: dict[int, str], now: dict[int, str]) -> dict[int, str] | None:
    """Changed handlers. Those that are code were set by cells."""
    return {number: how for number, how in now.items() if began.get(number) != how} or None


def put_signal_handlers(changed: dict[int, str]) -> list[str]:
    notes = []
    for number, how in changed.items():
        if how == "code":
            name = signal.Signals(number).name
            notes.append(f"The handler of {name} is code and was not kept; call signal.signal again.")
        else:
            signal.signal(number, signal.Handlers[how])
    return notes


def sqlite_functions() -> list[str] | None:
    """Adapters and converters that cells registered in sqlite3."""
    sqlite = sys.modules.get("sqlite3")
    adapters, converters = getattr(sqlite, "adapters", {}), getattr(sqlite, "converters", {})
    found = [f"adapter for {kind.__name__}" for (kind, _), function in adapters.items() if _is_users(function)]
    found += [f"converter {name}" for name, function in converters.items() if _is_users(function)]
    return sorted(found) or None


def _is_users(function: Any) -> bool:
    return getattr(function, "__module__", None) != "sqlite3.dbapi2"


def put_sqlite_functions(taken: list[str]) -> list[str]:
    return [f"sqlite3's {name} is code and was not kept; register it again." for name in taken]


def limits() -> dict[str, int]:
    """Soft limits."""
    return {name: resource.getrlimit(_limit(name))[0] for name in _LIMITS}


def _limit(name: str) -> int:
    return int(getattr(resource, f"RLIMIT_{name}"))


def limits_since(began: dict[str, int], now: dict[str, int]) -> dict[str, int] | None:
    return {name: most for name, most in now.items() if began.get(name) != most} or None


def put_limits(changed: dict[str, int]) -> list[str]:
    notes = []
    for name, most in changed.items():
        before, hard = resource.getrlimit(_limit(name))
        try:
            resource.setrlimit(_limit(name), (most, hard))
        except (ValueError, OSError):
            notes.append(f"The limit RLIMIT_{name} was {most}, which is not allowed now; it stays {before}.")
    return notes
