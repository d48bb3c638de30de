"""The agent's presence in a notebook that people have open: its name, its cursor, and people's autosave setting."""

from __future__ import annotations

from typing import Any

from pycrdt import Awareness, Doc, Text, create_awareness_message

PRESENCE_INTERVAL_S = 15.0  # others remove a client after 30 s without a message


class Presence:
    def __init__(self, doc: Doc[Any], agent: str) -> None:
        self._awareness = Awareness(doc)
        self._agent = agent
        self._cursors: list[dict[str, Any]] = []

    def apply_remote(self, update: bytes) -> bool:
        """Apply an update of others. Returns whether our own state changed. Raises ValueError if it is invalid."""
        before = self._autosave()
        try:
            self._awareness.apply_awareness_update(update, "remote")
        except (IndexError, RuntimeError, TypeError) as error:
            raise ValueError(f"no awareness: {error}") from None
        return before != self._autosave()

    def _autosave(self) -> bool:
        """JupyterLab saves automatically if any client has autosave on. We copy the setting of the people, so that the
        agent does not turn it on for a person who turned it off."""
        states = self._awareness.states.items()
        others = [state for client, state in states if client != self._awareness.client_id and state]
        people = [state for state in others if isinstance(state, dict)]
        return any(state.get("autosave", True) for state in people) if people else True

    def move_cursor(self, text: Text) -> None:
        """Move the cursor to the beginning of the text, where pages show the agent's name. Y has no position in an
        empty text."""
        position = text.sticky_index(0).to_json() if len(text) else None
        self._cursors = [{"anchor": position, "head": position, "primary": True, "empty": True}] if position else []

    def message(self) -> bytes:
        state = {"user": jupyter_user(self._agent), "autosave": self._autosave(), "cursors": self._cursors}
        self._awareness.set_local_state(state)
        return awareness_message(self._awareness)

    def leave_message(self) -> bytes:
        self._awareness.set_local_state(None)
        return awareness_message(self._awareness)


def jupyter_user(agent: str) -> dict[str, str]:
    """The agent as JupyterLab describes a user."""
    return {
        "username": agent.lower(),
        "name": agent,
        "display_name": agent,
        "initials": agent[:1],
        "color": "var(--jp-collaborator-color5)",
    }


def awareness_message(awareness: Awareness) -> bytes:
    """The message that tells others the local state."""
    return create_awareness_message(awareness.encode_awareness_update([awareness.client_id]))
