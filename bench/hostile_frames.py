"""Cells that write frames of their own to the channel or the relay of their kernel, on and on, until a file appears."""

from __future__ import annotations

from pathlib import Path

from quire.wire import messages

_PRELUDE = f"""
import gc, json, os, struct, sys, time
from itertools import count, cycle, repeat
held = {{type(each).__module__: each for each in gc.get_objects() if type(each).__name__ in ("Channel", "Relay")}}
channel = next(each for name, each in held.items() if name.endswith("worker.channel"))
relay = next(each for name, each in held.items() if name.endswith("capabilities.relay"))
def frame(say, fields, parts=(), **more):
    header = json.dumps({{"say": say, "with": fields, "parts": [len(part) for part in parts], **more}}).encode()
    prefix = struct.pack("!2sBBII", b"QW", {messages.VERSION}, 0, len(header), sum(map(len, parts)))
    return prefix + header + b"".join(parts)
def is_over():
    return os.path.exists(stop) or time.monotonic() > end
def flood(sock, frames):
    if os.fork() == 0:  # what a child prints makes the server look into the pipes
        while not is_over():
            os.write(1, b"x")
            time.sleep(0.01)
        os._exit(0)
    for data in frames:
        if is_over():
            break
        sock._sock.sendall(data)
"""

_ODD_VALUES = '{"kind": "html", "bundle": {"text/html": "x"}, "metadata": {"a": [{}] * 49_000}}'
_TOOLS = (
    '[{"name": f"tools{number}", "about": "", "approve": "", "expose": True, "methods":'
    ' [{"name": f"m{each}", "signature": "()", "description": "", "input": {}} for each in range(100)]}]'
)

_LONG_ERROR = 'frame("Raised", {"name": "E", "message": "", "traceback": ""}, [b"x" * 15_000_000], texts=[[0, "%s"]])'
_CALL = '{"call": number, "do": "tool", "capability": "none"}'

FLOODS = {
    "printed": 'flood(channel, repeat(frame("Printed", {"stream": "stdout", "data": {"$": 0}}, [b"x"]) * 500))',
    "cleared": 'flood(channel, repeat(frame("Cleared", {}) * 500))',
    "offers": f'flood(channel, (frame("Native", {{"capabilities": {_TOOLS}}}) for number in cycle(range(9))))',
    "tracebacks": f"flood(channel, repeat({_LONG_ERROR % 'traceback'}))",
    "messages": f"flood(channel, repeat({_LONG_ERROR % 'message'}))",
    "a long header": (
        'flood(channel, repeat(frame("Raised", {"name": "E", "message": "", "traceback": "x" * 15_000_000})))'
    ),
    "many values": f'flood(channel, repeat(frame("Displayed", {_ODD_VALUES})))',
    "too many values": 'flood(channel, repeat(frame("Value", {"value": [{}] * 5_000_000, "what": ""})))',
    "updates": (
        'flood(channel, (frame("Displayed", {"kind": "html", "bundle": {"text/html": "x" * 1_000_000},'
        ' "display_id": str(number), "update": True}) for number in count()))'
    ),
    "answers": 'flood(channel, repeat(frame("Inspected", {"variables": {"x": "y" * 1_000_000}, "functions": []})))',
    "garbage": "flood(channel, repeat(b'garbage' * 1_000))",
    "calls": (
        f'flood(relay, (b"".join(frame("Called", {_CALL}) for number in range(start, start + 500))'
        " for start in count(step=500)))"
    ),
    "calls of many values": (
        f'flood(relay, (frame("Called", {{**{_CALL}, "given": {{"a": [{{}}] * 49_000}}}}) for number in count()))'
    ),
    "calls given up": 'flood(relay, repeat(frame("GivenUp", {"call": 1}) * 500))',
}

_BETWEEN_RUNS = """
import threading
words = sys.modules[type(channel).send.__globals__["Printed"].__module__]
shown = words.Raised(name="E", message="", traceback="x" * 1_000_000)
os.register_at_fork(before=lambda: time.sleep(2))  # a checkpoint is a question that stays open so long
def on_and_on():
    while not is_over():
        channel.send(shown)
threading.Thread(target=on_and_on, daemon=True).start()
"""


def flooding(kind: str, stop: Path, seconds: float = 100) -> str:
    """A cell that floods with frames of this kind until the file `stop` appears."""
    return f"stop = {str(stop)!r}\n{_PRELUDE}\nend = time.monotonic() + {seconds}\n{FLOODS[kind]}"


def flooding_between_runs(stop: Path, seconds: float = 100) -> str:
    """A cell that leaves a thread which shows large errors until the file `stop` appears."""
    return f"stop = {str(stop)!r}\n{_PRELUDE}\nend = time.monotonic() + {seconds}\n{_BETWEEN_RUNS}"
