"""An image as a file: a line of JSON, the numbers of its pages, the pages."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from quire.runtimes.wasm.host.guest import PAGE, Ended, Image

_HEAD = struct.Struct("<4sII")
_MAGIC = b"QIM1"
_REGION = 16  # pages that are a segment of a snapshot together
_AT_ONCE = 64  # pages that are written together: memory a thread had once is seldom given back


def write(image: Image, file: Path) -> int:
    """Into a new file that is whole or not there; its bytes."""
    words = json.dumps({"artefact": image.artefact, "size": image.size, "rest": image.rest}).encode()
    numbers = sorted(image.pages)
    beside = file.with_suffix(".new")
    head = _HEAD.pack(_MAGIC, len(words), len(numbers)) + words + struct.pack(f"<{len(numbers)}I", *numbers)
    with beside.open("xb") as out:
        out.write(head)
        for at in range(0, len(numbers), _AT_ONCE):
            out.write(b"".join(image.pages[number] for number in numbers[at : at + _AT_ONCE]))
        size = out.tell()
    beside.replace(file)
    return size


def read(file: Path) -> Image:
    """Raises Ended where it is no image."""
    try:
        return parse(file.read_bytes())
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise Ended(f"The image {file.name} cannot be read: {error}.") from error


def parse(data: bytes) -> Image:
    magic, length, count = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("it is not an image")
    said = json.loads(data[_HEAD.size : _HEAD.size + length])
    at = _HEAD.size + length
    numbers = struct.unpack_from(f"<{count}I", data, at)
    at += 4 * count
    if len(data) != at + count * PAGE:
        raise ValueError("it is cut off")
    pages = {number: data[at + PAGE * place : at + PAGE * (place + 1)] for place, number in enumerate(numbers)}
    return Image(artefact=said["artefact"], size=said["size"], pages=pages, rest=said["rest"])


def segments(image: Image) -> Iterator[tuple[str, bytes]]:
    """An image in parts that stay as they are where nothing was written: its words, then region by region."""
    yield "", json.dumps({"artefact": image.artefact, "size": image.size, "rest": image.rest}).encode()
    for region, numbers in groupby(sorted(image.pages), key=lambda number: number // _REGION):
        some = list(numbers)
        head = struct.pack(f"<I{len(some)}I", len(some), *some)
        yield str(region), head + b"".join(image.pages[number] for number in some)


def joined(parts: Iterator[tuple[str, bytes]]) -> Image:
    """The image that was given in such parts."""
    said = json.loads(next(parts)[1])
    pages: dict[int, bytes] = {}
    for _, data in parts:
        (count,) = struct.unpack_from("<I", data)
        at = 4 + 4 * count
        for place, number in enumerate(struct.unpack_from(f"<{count}I", data, 4)):
            pages[number] = data[at + PAGE * place : at + PAGE * (place + 1)]
    return Image(artefact=said["artefact"], size=said["size"], pages=pages, rest=said["rest"])
