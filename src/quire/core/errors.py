"""What can go wrong with a call, sorted by what the caller can do next.

    QuireError
    ├─ InvalidRequest      the call itself is wrong: change it; nothing has changed
    │  ├─ VersionConflict  the cell was edited meanwhile: read it again
    │  └─ WrongArguments   the arguments do not fit the schema of a backend's tool
    ├─ NotFound            no such thing: choose one that the message names
    │  └─ NotInstalled     no such capability
    ├─ OverLimit           a limit is reached: wait as long as the message says, or make room; nothing has changed
    ├─ NotebookLocked      another server runs this notebook: use another notebook, or that server
    └─ OperationFailed     the machine could not do it: no disk space, no process; the message says what was kept
       ├─ ConnectionLost   a backend's connection ended
       └─ CallTimeout      a backend did not answer in time

What a *cell's* code raises is not one of these: it is data, the run's outcome. Every message is a
sentence that says what happened, what is kept, and what to do.
"""

from __future__ import annotations


class QuireError(Exception):
    """The base class of all errors of Quire. What to do next may differ: `agent` names tools, `person` commands."""

    def __init__(self, message: str = "", *, agent: str = "", person: str = "") -> None:
        super().__init__(f"{message} {agent}" if agent else message)
        self.for_person = " ".join(filter(None, (message, person)))


class InvalidRequest(QuireError):
    """The call cannot be done as it is; nothing was changed."""


class WrongArguments(InvalidRequest):
    """The arguments of a call do not fit the schema of a backend's tool. `path` leads to the value, `what` says what
    is wrong with it (a sentence's end), `is_type` whether that is its type."""

    def __init__(self, path: tuple[str | int, ...], what: str, *, is_type: bool = False) -> None:
        super().__init__(f"{'.'.join(map(str, path)) or 'what it is given'} {what}.")
        self.path, self.what, self.is_type = path, what, is_type


class VersionConflict(InvalidRequest):
    """An edit of a version that is no longer the newest."""


class NotFound(QuireError):
    """The named thing does not exist; the message names what does."""


class NotInstalled(NotFound):
    """There is no capability of that name."""


class OverLimit(QuireError):
    """More than a principal or the server may have at once; the message names the limit and what to do."""


class NotebookLocked(QuireError):
    """The notebook's kernel lives in another server process on the same data directory."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Notebook {name!r} is being run by another Quire server on this data directory.",
            agent="Use another notebook (create_notebook), or end that server.",
            person="Use another notebook (`quire exec --notebook NAME`), or end that server.",
        )


class OperationFailed(QuireError):
    """The machine could not do what was asked. `why` is for readers, not for calling code: what a backend printed,
    where its program is."""

    def __init__(self, message: str = "", *, why: str = "") -> None:
        super().__init__(f"{message} {why}" if why else message)
        self.plain, self.why = message, why


class ConnectionLost(OperationFailed):
    """The connection to a backend ended before it answered."""


class CallTimeout(OperationFailed):
    """A backend did not answer in time; the call was cancelled."""
