"""Kernels and sessions as Jupyter's API writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quire.clients.jupyter.ports import JupyterError, KernelInfo, SpecInfo


def kernel(model: Any, specs: Iterable[SpecInfo] = (), paths: Iterable[str] = ()) -> KernelInfo:
    if not isinstance(model, dict) or not isinstance(model.get("id"), str):
        raise JupyterError("The server says of a kernel what Jupyter's API does not say.")
    name = str(model.get("name") or "")
    spec = next((each for each in specs if each.name == name), None)
    connections = model.get("connections")
    return KernelInfo(
        id=model["id"],
        spec=name,
        display_name=spec.display_name if spec else name,
        language=spec.language if spec else "",
        state=str(model.get("execution_state") or ""),
        connections=connections if isinstance(connections, int) else 0,
        last_activity=str(model.get("last_activity") or ""),
        paths=tuple(paths),
    )


def paths_of(sessions: Any, kernel_id: str) -> list[str]:
    return [path for path, each in by_path(sessions) if each.get("id") == kernel_id]


def kernel_of(sessions: Any, path: str) -> dict[str, Any] | None:
    """The model of the kernel that a document uses."""
    return next((each for at, each in by_path(sessions) if at == path), None)


def by_path(sessions: Any) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(sessions, list):
        raise JupyterError("The server's list of sessions is not what Jupyter's API says.")
    return [
        (str(each.get("path") or "").lstrip("/"), each["kernel"])
        for each in sessions
        if isinstance(each, dict) and isinstance(each.get("kernel"), dict)
    ]


def session_body(path: str, *, spec: str = "", kernel_id: str = "") -> dict[str, Any]:
    return {
        "path": path,
        "name": path.rpartition("/")[2],
        "type": "notebook",
        "kernel": {"id": kernel_id} if kernel_id else {"name": spec},
    }


def in_use(path: str, kernel_id: str) -> JupyterError:
    return JupyterError(
        f"{path!r} uses the kernel {kernel_id} already. Use that one, or shut it down first: another in its place "
        "would end it, with all it has in memory."
    )
