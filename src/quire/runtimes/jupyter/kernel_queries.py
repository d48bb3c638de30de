"""Reads the namespace of a Python kernel with a silent execution, which leaves no trace."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

from quire.clients.jupyter.ports import JupyterError, KernelConnection
from quire.core.errors import OperationFailed
from quire.wire.messages import Inspect, Inspected, Page, Paged, Read, Value

_HELPERS = Path(__file__).parent / "in_kernel"


@cache
def source(name: str) -> str:
    return (_HELPERS / name).read_text("utf-8")


async def ask(connection: KernelConnection, question: Inspect | Read | Page) -> Inspected | Value | Paged:
    """Raises OperationFailed if the kernel does not answer."""
    match question:
        case Inspect():
            answer = await call_helper(connection, "inspect(namespace)")
            return Inspected(variables=_texts(answer.get("variables")), functions=_functions(answer.get("functions")))
        case Read(name=name):
            answer = await call_helper(connection, f"read(namespace, {name!r})")
            value = answer.get("value")
            return Value(value=value if isinstance(value, list) else [], what=str(answer.get("what", "")))
        case Page():
            return Paged(why_not="tables of a Jupyter kernel are shown once; run code for other rows")


async def call_helper(
    connection: KernelConnection, expression: str, file: str = "inspect_namespace.py"
) -> dict[str, Any]:
    """The value of an expression that uses the names of a file in `in_kernel`; `namespace` is the kernel's."""
    code = f"lambda s: (exec({source(file)!r}, s), eval({expression!r}, s))[1]"  # binds no name in the user's namespace
    return await evaluate(connection, f"({code})({{'namespace': globals()}})")


async def evaluate(connection: KernelConnection, expression: str) -> dict[str, Any]:
    """Evaluate an expression that returns a JSON object as text."""
    try:
        execution = await connection.execute(
            "", silent=True, store_history=False, user_expressions={"quire": expression}
        )
        while (message := await execution.next_message()).kind != "execute_reply":
            pass
    except JupyterError as error:
        raise OperationFailed(f"The Jupyter kernel did not answer: {error}") from error
    answer = message.content.get("user_expressions", {}).get("quire", {})
    if answer.get("status") != "ok":
        raise OperationFailed(
            f"The Jupyter kernel could not be inspected: {answer.get('evalue', 'it gave no answer')}."
        )
    try:
        result = json.loads(ast.literal_eval(answer["data"]["text/plain"]))
    except (KeyError, TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
        raise OperationFailed("The Jupyter kernel could not be inspected: its answer is not understood.") from None
    return result if isinstance(result, dict) else {}


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else {}


def _functions(value: Any) -> list[dict[str, str]]:
    items = value if isinstance(value, list) else []
    return [{"name": "", "signature": "", "docstring": "", **_texts(item)} for item in items]
