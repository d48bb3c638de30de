"""Time zones for zoneinfo, in memory: read when the component is built, from what the tzdata package has."""

from __future__ import annotations

import io
import marshal
import os
import zlib
import zoneinfo
from typing import IO, Any

FILE = "zones"  # which the build puts beside the program
_zones: dict[str, bytes] = {}
_packed = b""
_why = "The Python guest was built without the package tzdata, and so without time zones but UTC"


def install(folder: str) -> None:
    global _packed
    path = os.path.join(folder, FILE)
    if os.path.getsize(path):
        with open(path, "rb") as file:
            _packed = file.read()
    common: Any = zoneinfo._common
    common.load_tzdata = _load
    zoneinfo.available_timezones = zoneinfo._tzpath.available_timezones = _names


def _load(key: str) -> IO[bytes]:
    found = _known().get(key)
    if found is None:
        why = f"No time zone found with key {key}" if _packed else f"{_why}: {key} is not there"
        raise zoneinfo.ZoneInfoNotFoundError(why)
    return io.BytesIO(found)


def _names() -> set[str]:
    """Every key that can be asked for."""
    return set(_known())


def _known() -> dict[str, bytes]:
    if _packed and not _zones:
        _zones.update(marshal.loads(zlib.decompress(_packed)))  # noqa: S302 - written when it was built
    return _zones
