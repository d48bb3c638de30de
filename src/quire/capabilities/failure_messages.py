"""Messages for backends that could not be connected to or were lost."""

from __future__ import annotations

import re

from quire.core.runs.model_text import strip_escape_codes

_MAX_OUTPUT_CHARS = 4096  # of the output of a process
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_MAX_ERROR_CHARS = 4000  # of an error from the backend


def printed_output(errors: str, junk: str) -> str:
    """The output of a process, to be appended to a message."""
    text = ""
    if errors := _clean(errors):
        text += f" The end of its stderr:\n{errors}"
    if junk := _clean(junk):
        text += f"{chr(10) if text else ' '}On stdout, where only MCP messages belong, it printed:\n{junk}"
    return text


def _clean(text: str) -> str:
    return _without_control(text)[-_MAX_OUTPUT_CHARS:]


def _without_control(text: str) -> str:
    return _CONTROL_CHARS.sub("", strip_escape_codes(text)).strip()


def exited(program: str, status: str, errors: str, junk: str) -> str:
    rest = printed_output(errors, junk) or " It printed nothing; run the command in a terminal to see what it does."
    return f"{program} {status} before it had answered as an MCP server.{rest}"


def no_answer(what: str, timeout: float, errors: str, junk: str) -> str:
    rest = printed_output(errors, junk) or " It printed nothing; check that it is an MCP server and serves over stdio."
    return f"{what} did not answer as an MCP server within {timeout:g} s and was stopped.{rest}"


def timed_out(address: str, timeout: float) -> str:
    return f"{address} did not answer as an MCP server within {timeout:g} s. Check the address, or try again later."


def unreachable(address: str, why: str) -> str:
    return f"{address} could not be reached ({why}). Check that the server runs and that the address is right."


def http_status(number: int) -> str:
    """A call that failed with an HTTP status."""
    match number:
        case 401 | 403:
            return f"The server refused the login (HTTP status {number}); the token may have run out. Install it again."
        case 429:
            return "The server wants fewer calls (HTTP status 429). Wait, then call again."
        case _:
            return f"The server answered with HTTP status {number}. Try again later."


def http_refusal(address: str, status: int, kind: str, error: str) -> str:
    """A connection that an HTTP server refused."""
    match status:
        case 401 | 403:
            return (
                f"{address} needs a login (HTTP status {status}). Pass a header with a reference to a token that this "
                'server has in its environment, as in headers={"Authorization": "Bearer env:NAME"}.'
            )
        case 404 | 405:
            return (
                f"{address} has no MCP server at this path (HTTP status {status}). Most have theirs at /mcp. "
                "Servers of the older SSE transport are not supported."
            )
        case 0 if error.startswith("Unexpected content type"):
            return f"{address} is not an MCP server: it answered with {kind or 'something'} instead of JSON."
        case 0:
            return f"{address} refused to be connected to: {as_sentence(error)}"
        case _ if 300 <= status < 400:
            return f"{address} answered with a redirect (HTTP status {status}). {as_sentence(error)}"
        case _:
            return f"{address} answered with HTTP status {status}. Try again later, or look into that server's log."


def not_mcp(what: str, why: str, errors: str = "", junk: str = "") -> str:
    return f"{what} did not greet as an MCP server does: {as_sentence(why)}{printed_output(errors, junk)}"


def as_sentence(text: str) -> str:
    """An error from the backend as a sentence, limited in length."""
    text = _without_control(text)
    if len(text) > _MAX_ERROR_CHARS:
        text = text[:_MAX_ERROR_CHARS] + " …"
    return text if text.endswith((".", "!", "?", "…")) else text + "."
