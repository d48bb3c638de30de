"""Approvals: which calls need a person's consent, the open questions, and the answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import anyio

from quire.core.capabilities.model import Approve
from quire.core.errors import NotFound
from quire.core.runs.active_run import ActiveRun, Question

_MAX_NAME_CHARS = 200  # of a method
_MAX_ARGUMENTS_CHARS = 1_500  # of arguments shown to a person
_ORDER = tuple(Approve)  # from the least strict to the strictest


@dataclass(frozen=True, kw_only=True)
class ApprovalRules:
    rules: Mapping[str, Approve]  # of the operator, by "capability.method", "capability.*" or "*"; override all others
    unasked: bool  # whether calls with "ask" are allowed if no person can be asked
    timeout: float  # seconds to answer; then the call is denied


@dataclass(frozen=True, kw_only=True)
class PendingApproval:
    """A call that waits for approval."""

    id: str
    notebook: str
    cell: int | None
    what: str  # capability.method
    arguments: str
    asked_at: float  # seconds since the epoch


class Approvals:
    def __init__(self, rules: ApprovalRules) -> None:
        self._rules = rules
        self._open: dict[str, tuple[PendingApproval, Question]] = {}
        self._watchers = 0

    def needed(
        self, capability: str, methods: Sequence[str], declared: Mapping[str, Approve], default: Approve
    ) -> Approve:
        """The operator's rule; otherwise the stricter of the rule given at installation and the default.

        `methods` are the names of one method.
        """
        for pattern in (*(qualified_name(capability, method) for method in methods), f"{capability}.*", "*"):
            if pattern in self._rules.rules:
                return self._rules.rules[pattern]
        declared_rules = [declared[method] for method in (*methods, "*") if method in declared]
        return max(*declared_rules[:1], default, key=_ORDER.index) if declared_rules else default

    async def obtain(
        self, needed: Approve, active: ActiveRun | None, notebook: str, what: str, arguments: Mapping[str, Any]
    ) -> str:
        """Ask if needed. Returns "" if the call is allowed, otherwise the reason as a sentence."""
        if needed is Approve.ALLOW:
            return ""
        if needed is Approve.DENY:
            return f"The rule for {what} is deny: it was not called."
        if not self._watchers and (active is None or not active.questions.can_ask):
            if needed is Approve.ASK and self._rules.unasked:
                return ""
            return (
                f"{what} needs a person's approval, and no person can be asked here: it was not called. "
                f'The operator can allow it in quire.toml, below [capabilities]: approve = {{"{what}" = "allow"}}.'
            )
        what, shown = _printable(what)[:_MAX_NAME_CHARS], _shown(arguments)
        question = Question(
            number=0,
            prompt=f"Code in notebook {notebook!r} wants to call {what}({shown}). Allow it?",
            is_approval=True,
            why=f"Nobody approved {what} within {self._rules.timeout:g} s: it was not called.",
        )
        pending = PendingApproval(
            id=uuid4().hex[:12],
            notebook=notebook,
            cell=active.cell.number if active is not None and active.cell is not None else None,
            what=what,
            arguments=shown,
            asked_at=time.time(),
        )
        self._open[pending.id] = (pending, question)
        try:
            if active is None:
                question.shown.set()
            with active.questions.asking(question) if active is not None else nullcontext():
                await question.shown.wait()  # the timeout starts when the question is shown
                with anyio.move_on_after(self._rules.timeout):
                    await question.answered.wait()
        finally:
            del self._open[pending.id]
        return "" if question.line else question.why

    def pending(self) -> list[PendingApproval]:
        """Calls that wait for approval, oldest first."""
        return [pending for pending, _ in self._open.values()]

    def answer(self, id_: str, approved: bool) -> None:
        """Answer a question; the first answer counts."""
        if id_ not in self._open:
            raise NotFound("That question is closed: it was answered, or its time was over.")
        pending, question = self._open[id_]
        no = f"A person said no to {pending.what}: it was not called."
        question.answer("yes" if approved else None, no)
        question.shown.set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While entered, a person sees pending questions and can answer."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1


def qualified_name(capability: str, method: str) -> str:
    """The name used in rules and messages; a function is its own method."""
    return capability if method == capability else f"{capability}.{method}"


def _shown(arguments: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    more = f"… {len(text) - _MAX_ARGUMENTS_CHARS:,} characters more" if len(text) > _MAX_ARGUMENTS_CHARS else ""
    return _printable(text[:_MAX_ARGUMENTS_CHARS]) + more


def _printable(text: str) -> str:
    """Escape control characters, which could hide or reorder the text."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
