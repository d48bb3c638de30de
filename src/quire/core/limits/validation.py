"""Checks of the arguments of calls: names, code, timeouts. Pure functions; each error says what is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quire.core.errors import InvalidRequest
from quire.core.limits import network_rules
from quire.core.model import Notebook, Policy

NAME_CHARS = 100
RESERVED = ("current", "cell", "notebooks", "files")  # first parts of resource URIs


@dataclass(frozen=True, kw_only=True)
class Limits:
    cell_timeout: float  # seconds, the default of calls
    max_timeout: float  # seconds
    max_notebooks: int = 0  # per principal; 0 no limit
    max_cells: int  # per notebook
    max_code_bytes: int  # per cell
    max_output_bytes: int  # per run
    grace: float  # seconds between an interrupt and the kill
    call_wait_seconds: float  # seconds until a call returns while the run goes on
    network: tuple[str, ...] = ()  # hosts notebooks may be granted

    def check_code(self, code: str, *, empty: bool = False) -> str:
        if not empty and not code.strip():
            raise InvalidRequest("There is no code to run: `code` is empty. Nothing was changed.")
        if "\x00" in code:
            raise InvalidRequest("The code holds a NUL byte, which Python source cannot. Remove it and call again.")
        try:
            size = len(code.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"The code holds a lone surrogate at character {error.start}, which UTF-8 cannot encode. "
                "Write it as an escape (\\ud800) inside a string literal."
            ) from None
        if size > self.max_code_bytes:
            raise InvalidRequest(
                f"The code has {size:,} bytes, over the limit of {self.max_code_bytes:,} a cell "
                "(setting limits.max_code_bytes). Put data into a file of the workspace and read it from there."
            )
        return code

    def check_timeout(self, timeout: float | None) -> float:
        if timeout is None:
            return self.cell_timeout
        if not math.isfinite(timeout) or not 0 < timeout <= self.max_timeout:
            raise InvalidRequest(
                f"timeout must be above 0 and at most {self.max_timeout:g} seconds "
                f"(setting kernel.max_timeout_seconds); got {timeout:g}. "
                f"Leave it out for the default of {self.cell_timeout:g}."
            )
        return timeout


def check_policy(policy: Policy, limits: Limits, runtime: str = "python") -> Policy:
    if runtime != "python":
        cpu, processes = policy.cpu, policy.processes
        own = {"python": policy.python, "shell": policy.shell, "network": policy.network}
        _check_has(runtime, **own, cpu_seconds=cpu, processes=processes)
    for name, value, known in (
        ("isolation", policy.isolation, ("session", "cell")),
        ("on_error", policy.on_error, ("keep", "rollback")),
        ("shell", policy.shell, ("", "ipython")),
    ):
        if value not in known:
            raise InvalidRequest(f"{name} is {' or '.join(map(repr, known))}; got {value!r}.")
    if policy.network is not None:
        try:
            asked = network_rules.parse_rules(policy.network)
        except ValueError as error:
            raise InvalidRequest(f"network: {error}.") from None
        if not network_rules.are_granted(asked, network_rules.parse_rules(limits.network)):
            wide = ", ".join(limits.network) or "none"
            raise InvalidRequest(
                f"A notebook's network can be no wider than what was granted here: {wide}. "
                "The operator can grant more: setting `sandbox.network`."
            )
    return policy


def _check_has(runtime: str, **asked: object) -> None:
    """Raises InvalidRequest for options that the runtime lacks: WebAssembly has no interpreter, IPython, network or
    processes, and limits a run by its fuel."""
    for name, value in asked.items():
        if value:
            raise InvalidRequest(f"{name} is for the runtime python; {runtime} has none. Leave it out.")


def check_states(notebook: Notebook) -> None:
    """Raises InvalidRequest if the notebook's kernel has no checkpoints and snapshots."""
    if notebook.document is not None:
        raise InvalidRequest(
            f"Notebook {notebook.name!r} runs in a kernel of a Jupyter server, which keeps no earlier states and saves "
            "none. Nothing was changed. Run its cells again to come back to one, or restart_notebook to start over."
        )


def check_name(name: str, *, new: bool = True, what: str = "notebook") -> str:
    """Raises InvalidRequest. An existing notebook may have a reserved name, from before it was reserved."""
    if not 1 <= len(name) <= NAME_CHARS:
        raise InvalidRequest(f"The name of a {what} has 1 to {NAME_CHARS} characters; got {len(name)}.")
    if name != name.strip() or not name.isprintable() or any(mark in name for mark in "/\\?#%{}"):
        raise InvalidRequest(
            f"{name!r} cannot name a {what}: use letters, digits, spaces and any of . _ - + , "
            "without a space at either end."
        )
    if (new and name in RESERVED) or set(name) == {"."}:
        raise InvalidRequest(f"{name!r} is a reserved word; choose another name for the {what}.")
    return name
