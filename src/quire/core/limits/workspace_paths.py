"""Paths in a workspace that callers pass: validate, split and display them. Pure functions."""

from __future__ import annotations

import os

from quire.core.errors import InvalidRequest

_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 4_000
_MAX_SHOWN_CHARS = 200  # of a path in a message


def path_parts(workspace: str, path: str) -> tuple[str, ...]:
    """The parts of a path below the workspace; none for the workspace itself. Raises InvalidRequest.

    An absolute path must begin with the workspace's path."""
    if "\x00" in path:
        raise InvalidRequest("A path cannot hold a NUL byte.")
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidRequest(f"{quoted(path)} cannot be encoded as UTF-8. Rename the file in a cell.") from None
    absolute = path.startswith("/")
    if os.name == "nt":  # both separators, and drives
        path, workspace = path.replace("\\", "/"), workspace.replace("\\", "/")
        absolute = path.startswith("/") or path[1:3] == ":/"
    inner = path
    if absolute:
        if path != workspace and not path.startswith(f"{workspace.rstrip('/')}/"):
            raise InvalidRequest(
                f"{quoted(path)} is outside the notebook's workspace {workspace}. Give a path inside it."
            )
        inner = path[len(workspace) :]
    found = tuple(step for step in inner.split("/") if step not in ("", "."))
    if ".." in found:
        raise InvalidRequest(f"{quoted(path)} goes up with `..`. Give the path from the workspace down.")
    if size > _MAX_PATH_BYTES or any(len(step.encode("utf-8")) > _MAX_NAME_BYTES for step in found):
        raise InvalidRequest(
            f"{quoted(path)} is too long: a name has at most {_MAX_NAME_BYTES} bytes, a path {_MAX_PATH_BYTES:,}. "
            "Nothing was changed."
        )
    return found


def quoted(name: str) -> str:
    """A name in quotes, with control characters escaped, for messages and terminals."""
    name = name if len(name) <= _MAX_SHOWN_CHARS else f"{name[:_MAX_SHOWN_CHARS]}..."
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return repr(name.encode("utf-8", "surrogateescape")) if _is_file_name(name) else ascii(name)
    return repr(name)


def display_path(name: str) -> str:
    """The same without quotes if the name needs none."""
    harmless = (
        name.isprintable()
        and name == name.strip()
        and len(name) <= _MAX_SHOWN_CHARS
        and not name.startswith(("'", '"'))
    )
    return name if harmless else quoted(name)


def _is_file_name(name: str) -> bool:
    """Whether its surrogates are undecodable bytes of a file name."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True
