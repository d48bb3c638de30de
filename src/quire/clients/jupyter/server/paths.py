"""Checks and normalizes paths below a Jupyter server's root."""

from __future__ import annotations

from quire.clients.jupyter.ports import JupyterError


def normalize_path(path: str) -> str:
    """The path in the server's form, such as `a/b.ipynb`. Raises JupyterError if it is outside the root."""
    if "\0" in path or "\\" in path:
        raise JupyterError(f"{path!r} is no path of a Jupyter server: it has a character that none may have.")
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise JupyterError(f"{path!r} is outside the Jupyter server's root folder; name a path below it.")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
