"""Ask the person at the client for input() of a cell or for approval of a call.

Up to protocol 2025-11-25 the server asks during the call. From 2026-07-28 on a call ends with the question, and the
client calls again with the answer and the sealed state that names the question; the run waits meanwhile.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from quire.core.errors import NotFound
from quire.core.model import Notebook
from quire.core.runs.active_run import ActiveRun, Question
from quire.frontends.mcp.client_request import ClientRequest

_LINE: dict[str, Any] = {"type": "object", "properties": {"value": {"type": "string", "title": "Input"}}}
_YES: dict[str, Any] = {"type": "object", "properties": {"approve": {"type": "boolean", "title": "Allow the call"}}}
_NO = "the person gave no answer. Put the value into the code instead."


class ClientMustAsk(Exception):
    """The call ends with a question; the client calls again with the answer."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("input required")
        self.result = result


def possible(request: ClientRequest) -> bool:
    """Whether this client can ask a person for a line of text now."""
    capabilities = request.session.client_capabilities
    given = capabilities.elicitation if capabilities is not None else None
    if given is None or (given.form is None and given.url is not None):
        return False
    return request.is_modern or request.session.can_send_request


@dataclass(frozen=True)
class Reply:
    """The answer that a client came back with."""

    active: ActiveRun
    question: Question
    response: Any

    def give(self) -> None:
        """Give the answer to the run. Without an answer the question stays open."""
        if isinstance(self.response, ElicitResult):
            self.active.questions.answer(self.question, *_answer(self.question, self.response))


class Asking:
    """Runs that wait for a client to come back with an answer."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[ActiveRun, Question]] = {}

    def notebook(self, request: ClientRequest) -> str | None:
        """The notebook whose run waits for the answer that this call brings, or None."""
        with suppress(ValueError, KeyError, TypeError):
            if request.state is not None:
                return self._waiting[json.loads(request.state)["question"]][0].notebook.title
        return None

    def reply(self, request: ClientRequest, notebook: Notebook) -> Reply | None:
        """The answer that this call brings to a run of this notebook, or None.

        Raises NotFound if its question is closed.
        """
        if request.state is None:
            return None
        try:
            key = json.loads(request.state)["question"]
            if self._waiting[key][0].notebook.id != notebook.id:
                raise KeyError(key)
            active, question = self._waiting.pop(key)
        except (ValueError, KeyError, TypeError):
            raise NotFound("The question this answers is closed: its run went on without it, or is over.") from None
        return Reply(active, question, (request.input_responses or {}).get("input"))

    async def ask(self, request: ClientRequest, active: ActiveRun, question: Question) -> None:
        """Get an answer during the call, or raise ClientMustAsk."""
        if not request.is_modern:
            await self._ask_during_call(request, active, question)
            return
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if not waiting[0].done.is_set()}
        key = uuid4().hex
        self._waiting[key] = (active, question)
        form = ElicitRequestFormParams(message=_message(question), requested_schema=_form(question))
        raise ClientMustAsk(
            InputRequiredResult(
                input_requests={"input": ElicitRequest(params=form)},
                request_state=json.dumps({"question": key}),
            )
        )

    async def _ask_during_call(self, request: ClientRequest, active: ActiveRun, question: Question) -> None:
        async def withdraw() -> None:
            await question.answered.wait()
            group.cancel_scope.cancel()

        async def over() -> None:
            await active.done.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(withdraw)
            group.start_soon(over)
            try:
                reply = await request.session.elicit_form(
                    _message(question), _form(question), related_request_id=request.id
                )
                active.questions.answer(question, *_answer(question, reply))
            except (MCPError, ValueError) as error:  # ValueError: an invalid reply
                if question.is_approval:
                    active.questions.answer(question, None, f"The client could not ask for approval ({error}).")
                else:
                    why = f"the client could not ask ({error}). Put the value into the code instead."
                    active.questions.answer(question, None, why)
            group.cancel_scope.cancel()


def _message(question: Question) -> str:
    return question.prompt.strip() or "A cell asks for input."


def _form(question: Question) -> dict[str, Any]:
    return _YES if question.is_approval else _LINE


def _answer(question: Question, reply: ElicitResult) -> tuple[str | None, str]:
    if question.is_approval:
        # the person may accept the form without ticking the box
        yes = reply.action == "accept" and (reply.content or {}).get("approve") is True
        return ("yes", "") if yes else (None, "A person said no: it was not called.")
    if reply.action != "accept":
        return None, _NO
    value = (reply.content or {}).get("value", "")
    return (value, "") if isinstance(value, str) else (str(value), "")
