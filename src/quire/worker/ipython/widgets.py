"""ipywidgets without a browser: they keep their state and are shown as text.

Nothing answers a widget, so nothing may wait for an answer. Shown widgets are updated at the end of a cell; their
state is saved with the output, for exported notebooks.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from quire.worker.output import display as displays
from quire.worker.output.display import WIDGET, Display, OutputCapture
from quire.worker.shell import import_hooks

STATE = "application/vnd.quire.widget-state+json"
_MAX_WIDGETS = 200  # whose state is followed


def install(display: Display) -> None:
    """Activate this once `comm`, on which widgets are based, is imported."""
    import_hooks.after_import("comm", lambda module: _Widgets(display).take_over(module))


class _Widgets:
    def __init__(self, display: Display) -> None:
        self._display = display
        self._shown: dict[str, tuple[dict[str, Any], str]] = {}  # by display id: bundle, and the state last sent
        self._changed = False
        self._active_captures: dict[str, _WidgetCapture] = {}  # by widget, while its `with` block runs
        self._finished_captures: list[tuple[str, _WidgetCapture]] = []  # to hand to their widgets

    def take_over(self, comm: Any) -> None:
        widgets = self

        class BaseComm(comm.base_comm.BaseComm):
            def publish_msg(self, msg_type: str, data: Any = None, *args: Any, **options: Any) -> None:
                widgets.on_message(self.comm_id, data if isinstance(data, dict) else {})

        comm.create_comm = BaseComm
        self._display.describe_widget = self.describe
        self._display.after_cell = self.update

    def on_message(self, widget: str, data: dict[str, Any]) -> None:
        """A widget sends its state to the browser; an Output widget starts or ends capturing."""
        self._changed = True
        state = data.get("state")
        if isinstance(state, dict) and "msg_id" in state:
            if state["msg_id"] and widget not in self._active_captures:
                self._active_captures[widget] = _WidgetCapture(self._display)
            elif not state["msg_id"] and widget in self._active_captures:
                finished = self._active_captures.pop(widget)
                finished.end()
                self._finished_captures.append((widget, finished))  # at the end of the cell, as a browser would

    def _set_outputs(self, widget: str, finished: _WidgetCapture) -> None:
        found = _instance(widget)
        if found is not None:
            before = () if finished.replaces else tuple(found.outputs)
            found.outputs = (*before, *finished.outputs)

    def describe(self, data: dict[str, Any], display_id: str) -> dict[str, Any]:
        """The state to send with a widget that is shown."""
        state = _current_state(data)
        self._shown[display_id] = (data, json.dumps(state, default=repr))
        if len(self._shown) > _MAX_WIDGETS:
            del self._shown[next(iter(self._shown))]
        return state

    def update(self) -> None:
        """Send the widgets that have changed."""
        finished, self._finished_captures = self._finished_captures, []
        for widget, capture in finished:
            self._set_outputs(widget, capture)
        if not self._changed:
            return
        self._changed = False
        for display_id, (data, sent) in list(self._shown.items()):
            state = _current_state(data)
            text = json.dumps(state, default=repr)
            if text != sent and state:
                self._shown[display_id] = (data, text)
                self._display.publish({**data, **state}, None, {"display_id": display_id}, True)


def _current_state(data: dict[str, Any]) -> dict[str, Any]:
    """A widget's current text and state."""
    found = _instance(str(data[WIDGET].get("model_id", "")))
    if found is None:
        return {}
    try:
        from ipywidgets.embed import dependency_state

        text = found._repr_mimebundle_().get("text/plain", repr(found))
        return {displays.CURRENT_TEXT: text, STATE: dependency_state([found])}
    except Exception:  # unusual widget: its view stays as shown
        return {}


def _instance(model: str) -> Any:
    module = sys.modules.get("ipywidgets.widgets.widget")
    return module._instances.get(model) if module is not None else None


class _WidgetCapture(OutputCapture):
    """Captures output inside an Output widget."""

    def __init__(self, display: Display) -> None:
        self.outputs: list[dict[str, Any]] = []
        self.replaces = False
        self._clear_next = False
        self._display = display
        self._streams = (sys.stdout, sys.stderr)
        display.captures.append(self)
        sys.stdout, sys.stderr = _Stream(self, "stdout"), _Stream(self, "stderr")

    def end(self) -> None:
        sys.stdout, sys.stderr = self._streams
        if self in self._display.captures:
            self._display.captures.remove(self)

    def shown(self, data: dict[str, Any], metadata: dict[str, Any], result: bool) -> None:
        clean = {mime: _as_json(mime, value) for mime, value in displays.clean_bundle(data).items()}
        self._add({"output_type": "display_data", "metadata": metadata, "data": clean})

    def printed(self, name: str, text: str) -> None:
        last = self.outputs[-1] if self.outputs and not self._clear_next else {}
        if last.get("name") == name:
            last["text"] += text
        else:
            self._add({"output_type": "stream", "name": name, "text": text})

    def failed(self, name: str, message: str, traceback: str) -> None:
        text = {"output_type": "error", "ename": name, "evalue": message, "traceback": traceback.split("\n")}
        self._add(text)

    def cleared(self, wait: bool) -> None:
        if wait:
            self._clear_next = True
        else:
            self.outputs, self.replaces = [], True

    def _add(self, output: dict[str, Any]) -> None:
        if self._clear_next:
            self._clear_next = False
            self.outputs, self.replaces = [], True
        self.outputs.append(output)


def _as_json(mime: str, data: str | bytes) -> Any:
    if isinstance(data, bytes):
        import base64

        return base64.b64encode(data).decode("ascii")
    return json.loads(data) if displays.is_json(mime) else data


class _Stream(io.TextIOBase):
    encoding = "utf-8"

    def __init__(self, capture: _WidgetCapture, name: str) -> None:
        super().__init__()
        self._capture = capture
        self._name = name

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text:
            self._capture.printed(self._name, str(text))
        return len(text)
