"""Kernelspecs as a Jupyter server lists them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from quire.clients.jupyter.ports import JupyterError, Missing, SpecInfo

SpecsOf = Callable[[], Awaitable[tuple[str, list[SpecInfo]]]]


def read(answer: Any) -> tuple[str, list[SpecInfo]]:
    """Of `GET /api/kernelspecs`: the default one's name, and all."""
    if not isinstance(answer, dict) or not isinstance(answer.get("kernelspecs"), dict):
        raise JupyterError("The server's list of kernelspecs is not what Jupyter's API says.")
    return str(answer.get("default", "")), [one(str(name), each) for name, each in answer["kernelspecs"].items()]


def one(name: str, model: Any) -> SpecInfo:
    spec = model.get("spec") if isinstance(model, dict) else None
    spec = spec if isinstance(spec, dict) else {}
    return SpecInfo(
        name=name, display_name=str(spec.get("display_name") or name), language=str(spec.get("language") or "")
    )


async def spec_for(specs: SpecsOf, kernel: str) -> SpecInfo | None:
    """The one of this name; without a name the default one. Raises Missing for one that is not there."""
    default, every = await specs()
    found = next((each for each in every if each.name == (kernel or default)), None)
    if found is None and kernel:
        raise no_spec(kernel, every)
    return found


def no_spec(kernel: str, every: list[SpecInfo]) -> Missing:
    names = ", ".join(sorted(each.name for each in every)) or "none"
    return Missing(f"There is no kernelspec {kernel!r} on the Jupyter server; it has {names}.")
