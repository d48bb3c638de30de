"""The kernel's end of the relay: a call is a function of the host's, which waits for the answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from quire.wire import relay, texts
from quire.wire.messages import BadMessage, is_shallow
from quire.wire.relay import Called, Returned
from quire.worker.capabilities import errors
from quire.worker.capabilities.errors import CapabilityGone
from quire.worker.execution.interrupts import Interrupts

_CHARS = 16 << 20  # of a call

ask: Callable[[Called], str] | None = None
"""Set by the kernel: says a call to the host and gives its answer."""


class Relay:
    def __init__(self, interrupts: Interrupts) -> None:
        self._numbers = itertools.count(1)

    def call(self, do: str, **words: Any) -> dict[str, Any]:
        """Raises a ToolError of the kind that was refused."""
        if not is_shallow(words.get("given", {})):
            raise ValueError("The arguments are nested too deeply to be sent: 50 levels are the most.")
        called = Called(call=next(self._numbers), do=do, **words)
        if len(texts.dump(called)) > _CHARS:
            raise ValueError(
                f"The arguments are too large to be sent: {_CHARS:,} characters as JSON are the most. "
                "Write the data to a file that the tool can read, or call with parts of it."
            )
        if ask is None:
            raise CapabilityGone("This kernel has no way to call capabilities.")
        try:
            answer = texts.load(relay.SERVER_MESSAGES, ask(called))
        except BadMessage:
            raise CapabilityGone("The answer could not be read.") from None
        if isinstance(answer, Returned):
            return answer.value
        raise errors.make_error(answer.kind, answer.message, answer.hint)

    async def call_async(self, do: str, **words: Any) -> dict[str, Any]:
        """As `call`: there is nothing else that could go on meanwhile."""
        return self.call(do, **words)
