"""What libraries want to be told of: callbacks by event."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

NAMES = ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell", "shell_initialized")


class Events:
    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callable[..., Any]]] = {name: [] for name in NAMES}

    def register(self, event: str, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"A callback can be called; {function!r} cannot.")
        if function not in self.callbacks[event]:
            self.callbacks[event].append(function)

    def unregister(self, event: str, function: Callable[..., Any]) -> None:
        if function not in self.callbacks[event]:
            raise ValueError(f"{function!r} is not registered for {event}.")
        self.callbacks[event].remove(function)

    def trigger(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call all of them; what one raises is printed and does not stop the others."""
        for function in self.callbacks[event][:]:
            try:
                function(*args, **kwargs)
            except (Exception, KeyboardInterrupt):
                sys.stderr.write(f"Error in callback {function} (for {event}):\n{traceback.format_exc()}")
