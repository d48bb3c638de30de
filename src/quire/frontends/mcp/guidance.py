"""Instructions and hints for a model, which name only the tools that this server offers. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping

_STAYS = """\
A place to run {what} that keeps its state: variables stay between calls and come back from disk after a restart (the
first answer says what did not), every run is a cell kept on disk."""
_SETS = {
    "repl": "execute runs code in the current notebook (`main` unless you choose another); `notebook=` names another.",
    "notebook": """\
add_cell and execute_cell work with cells. They run as in Jupyter: %magics, !commands, display; a person's ipynb comes
in by import_ipynb and goes out by export_notebook_as_ipynb.""",
    "sandbox": """\
execute_code runs Python or JavaScript in WebAssembly, with no network and no processes, in your session of that
language; create_session makes others, with their own variables, folder and limits.""",
    "jupyter": """\
use_notebook takes up a notebook of a Jupyter server, with its kernel; the other tools are for the last of them.""",
    "timeline": "rollback steps back to any earlier cell, branch_notebook tries a second way.",
    "capabilities": """\
install_capability makes any MCP server an object that code calls, `caps` in code lists them.""",
}
_FAILED = """\
After an error, variables are kept; after a crash or a kill they are as before that cell, and the answer says what is
not."""
_RUNS = re.compile(r"(^|_)(run|exec|eval|python|shell|bash|terminal|code)(_|$)")  # tools of other servers that run code
_MAX_NAME_CHARS = 100  # of an unknown tool's name in the message
_CUT = "Long outputs are shown shortened with the address of the whole."


class Guidance:
    def __init__(self, toolsets: Collection[str]) -> None:
        self._sets = toolsets

    def instructions(self) -> str:
        first = _STAYS.format(what="Python" if {"repl", "notebook"} & {*self._sets} else "code")
        sets = [text for name, text in _SETS.items() if name in self._sets]
        alone = "sandbox" in self._sets and "notebook" not in self._sets
        ended = self._ended(session=alone)
        longer = f"A run that outlasts the call goes on: {self._shown('the address of its cell')}, {ended}."
        return "\n".join([first, *sets, longer, _FAILED, _CUT])

    def goes_on(self, address: str, *, session: bool) -> str:
        """About a cell that still runs when the call is answered."""
        return f"It goes on: {self._shown(address)}, {self._ended(session)}."

    def follow(self) -> str:
        """About cells that run one after the other."""
        stops = "interrupt stops" if "repl" in self._sets else "their timeouts end"
        return f"list_cells shows how far they are, {stops} them."

    def waits(self) -> str:
        """About a cell that has not started."""
        if "notebook" in self._sets:
            return "get_cell shows when it has run."
        return "Call again later: what you run then comes after it."

    def _shown(self, address: str) -> str:
        return "get_cell shows it" if "notebook" in self._sets else f"{address} shows it"

    def _ended(self, session: bool) -> str:
        if "repl" in self._sets:
            return "interrupt ends it"
        return "destroy_session ends it" if "sandbox" in self._sets and session else "its timeout ends it"


def unknown_tool(name: str, offered: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> str:
    """The message about a tool that is not offered. `elsewhere`: the tool sets of tools that could be."""
    name = name[:_MAX_NAME_CHARS]
    runs = _RUNS.search(name) is not None and "execute" in offered
    near = [] if name in elsewhere or runs else _nearest(name, [*offered, *elsewhere])
    near = [tool for tool in near if tool in offered] or near
    said = [f"Unknown tool {name!r}, nothing was called."]
    if runs:
        said.append("execute runs code.")
    if near:
        said.append(f"Did you mean {' or '.join(near)}?")
    for tool in (name, *near):
        if tool in elsewhere:
            sets = " and ".join(elsewhere[tool])
            many = "s" if len(elsewhere[tool]) > 1 else ""
            said.append(
                f"{tool} is in the tool set{many} {sets}, not offered by this server (setting server.toolsets)."
            )
    if len(said) == 1:
        said.append(f"There are: {', '.join(offered)}.")
    return " ".join(said)


def _nearest(name: str, known: Collection[str]) -> list[str]:
    """At most two names; also for a name with a prefix, as in `quire_execute`."""
    ends = [each for each in known if re.search(rf"[^a-z]{each}$", name)]
    return [max(ends, key=len)] if ends else difflib.get_close_matches(name, known, n=2)
