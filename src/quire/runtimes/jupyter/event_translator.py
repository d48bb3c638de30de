"""Pure translation of Jupyter messages about an execution into events of the wire."""

from __future__ import annotations

import ast
import json
from typing import Any

from quire.clients.jupyter.ports import Message
from quire.notebook_format import ipynb_reader, mime_bundles
from quire.wire.messages import Asked, Bundle, Cleared, Displayed, Event, Finished, Printed, Raised, is_shallow

_INTERRUPT_ERRORS = ("KeyboardInterrupt", "InterruptedException", "interrupt")  # names in kernels of several languages
_MAX_LITERAL_CHARS = 20_000  # longer values are not parsed


class EventTranslator:
    """Translates the messages of one run and keeps its state."""

    def __init__(self, run: str, *, python: bool) -> None:
        self._run = run
        self._python = python
        self.has_begun = False  # the kernel runs this code now
        self.unanswered = ""  # why an input request got no answer and the code was interrupted
        self._questions = 0
        self._value: list[Any] = []
        self._raised = ""
        self.pending_event: Finished | None = None  # to be delivered after the last event

    def event(self, message: Message) -> Event | None:
        content = message.content
        match message.kind:
            case "execute_input":
                self.has_begun = True
            case "stream":
                name = "stderr" if content.get("name") == "stderr" else "stdout"
                return Printed(stream=name, data=_text(content.get("text")).encode("utf-8", "backslashreplace"))
            case "execute_result" | "display_data" | "update_display_data":
                return self._displayed(message)
            case "clear_output":
                return Cleared(wait=bool(content.get("wait")))
            case "error":
                return self._error(content)
            case "input_request":
                self.has_begun = True  # on another channel than execute_input, may arrive first
                self._questions += 1
                return Asked(question=self._questions, prompt=_text(content.get("prompt")))
            case "execute_reply":
                return self._reply(content)
        return None

    def _displayed(self, message: Message) -> Displayed:
        content, result = message.content, message.kind == "execute_result"
        all_data, _ = mime_bundles.from_document(_object(content.get("data")))
        bundle: Bundle = {mime: data for mime, data in all_data.items() if isinstance(data, (str, bytes))}
        metadata = _object(content.get("metadata"))
        if result:
            self._value = _literal(bundle) if self._python else []
        return Displayed(
            kind=ipynb_reader.output_type_of(all_data).value,
            bundle=bundle,
            metadata=metadata if is_shallow(metadata) else {},
            result=result,
            display_id=_text(_object(content.get("transient")).get("display_id") or ""),
            update=message.kind == "update_display_data",
        )

    def _error(self, content: dict[str, Any]) -> Raised:
        name, message = _text(content.get("ename")), _text(content.get("evalue"))
        self._raised = name
        lines = content.get("traceback")
        traceback = "\n".join(map(_text, lines)) if isinstance(lines, list) else ""
        if self.unanswered:
            traceback = f"{traceback}\nEOFError: {self.unanswered}"
            return Raised(name="EOFError", message=self.unanswered, traceback=traceback)
        return Raised(name=name, message=message, traceback=traceback or f"{name or 'Error'}: {message}")

    def _reply(self, content: dict[str, Any]) -> Event:
        """Some kernels end interrupted code without an error. Then the reason for the interrupt becomes the error."""
        finished = self._finished(content)
        if not self.unanswered or self._raised or finished.outcome != "error":
            return finished
        self.pending_event = finished
        return Raised(name="EOFError", message=self.unanswered, traceback=f"EOFError: {self.unanswered}")

    def _finished(self, content: dict[str, Any]) -> Finished:
        count = content.get("execution_count")
        raised = self._raised or _text(content.get("ename") or "")
        outcome = "success" if content.get("status") == "ok" else "error"
        if (
            outcome == "error"
            and not self.unanswered
            and (content.get("status") != "error" or raised in _INTERRUPT_ERRORS)
        ):
            outcome = "interrupted"  # also "aborted": it did not run
        value = self._value if outcome == "success" else []
        number = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0
        return Finished(run=self._run, outcome=outcome, value=value, count=number)


def _literal(bundle: Bundle) -> list[Any]:
    """[value] if the displayed text is a literal that JSON can represent; else []."""
    text = bundle.get("text/plain")
    if not isinstance(text, str) or len(bundle) > 1 or len(text) > _MAX_LITERAL_CHARS:
        return []
    try:
        value = ast.literal_eval(text)
        return [json.loads(json.dumps(value, allow_nan=False))] if _is_json(value) else []
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []


def _is_json(value: Any) -> bool:
    """Whether JSON represents the value without loss."""
    match value:
        case dict():
            return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
        case list() | tuple():
            return all(map(_is_json, value))
        case _:
            return value is None or isinstance(value, (str, int, float, bool))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
