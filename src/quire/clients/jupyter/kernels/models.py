"""Reads kernels, kernelspecs and sessions from the JSON of Jupyter's API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from quire.clients.jupyter.ports import JupyterError, KernelInfo, Missing, SpecInfo

ListSpecs = Callable[[], Awaitable[tuple[str, list[SpecInfo]]]]


def to_specs(answer: Any) -> tuple[str, list[SpecInfo]]:
    """The default kernelspec's name and all kernelspecs, from the response of `GET /api/kernelspecs`."""
    if not isinstance(answer, dict) or not isinstance(answer.get("kernelspecs"), dict):
        raise JupyterError("The server's list of kernelspecs is not what Jupyter's API says.")
    return str(answer.get("default", "")), [to_spec(str(name), model) for name, model in answer["kernelspecs"].items()]


def to_spec(name: str, model: Any) -> SpecInfo:
    spec = model.get("spec") if isinstance(model, dict) else None
    spec = spec if isinstance(spec, dict) else {}
    return SpecInfo(
        name=name, display_name=str(spec.get("display_name") or name), language=str(spec.get("language") or "")
    )


async def find_spec(specs: ListSpecs, kernel: str) -> SpecInfo | None:
    """The kernelspec of this name; the default one if the name is empty. Raises Missing."""
    default, all_specs = await specs()
    spec = next((spec for spec in all_specs if spec.name == (kernel or default)), None)
    if spec is None and kernel:
        raise spec_not_found(kernel, all_specs)
    return spec


def spec_not_found(kernel: str, all_specs: list[SpecInfo]) -> Missing:
    names = ", ".join(sorted(spec.name for spec in all_specs)) or "none"
    return Missing(f"There is no kernelspec {kernel!r} on the Jupyter server; it has {names}.")


def to_kernel_info(model: Any, specs: Iterable[SpecInfo] = (), paths: Iterable[str] = ()) -> KernelInfo:
    if not isinstance(model, dict) or not isinstance(model.get("id"), str):
        raise JupyterError("The server says of a kernel what Jupyter's API does not say.")
    name = str(model.get("name") or "")
    spec = next((spec for spec in specs if spec.name == name), None)
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


def session_paths(sessions: Any, kernel_id: str) -> list[str]:
    return [path for path, kernel in kernels_by_path(sessions) if kernel.get("id") == kernel_id]


def find_kernel(sessions: Any, path: str) -> dict[str, Any] | None:
    """The kernel of a document's session."""
    return next((kernel for used_by, kernel in kernels_by_path(sessions) if used_by == path), None)


def kernels_by_path(sessions: Any) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(sessions, list):
        raise JupyterError("The server's list of sessions is not what Jupyter's API says.")
    return [
        (str(session.get("path") or "").lstrip("/"), session["kernel"])
        for session in sessions
        if isinstance(session, dict) and isinstance(session.get("kernel"), dict)
    ]


def session_body(path: str, *, spec: str = "", kernel_id: str = "") -> dict[str, Any]:
    return {
        "path": path,
        "name": path.rpartition("/")[2],
        "type": "notebook",
        "kernel": {"id": kernel_id} if kernel_id else {"name": spec},
    }


def already_in_use(path: str, kernel_id: str) -> JupyterError:
    return JupyterError(
        f"{path!r} uses the kernel {kernel_id} already. Use that one, or shut it down first: another in its place "
        "would end it, with all it has in memory."
    )
