"""Refuse arguments that do not fit a tool, in a sentence instead of a validator's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from quire.core.errors import InvalidRequest

_TYPES = ("int", "str", "float", "bool")  # what pydantic adds to the path of an argument that may have several types
_MAX_INTEGER = 2**63


def check_numbers(tool: str, arguments: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for integers over 64 bits: no tool has a use for them, and no database takes them."""
    for name, value in arguments.items():
        if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER:
            raise InvalidRequest(f"{tool} was not called, nothing has changed: {name} is too large a number.")


def parameter_names(tool: str, schema: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of a tool's parameters; under `tool.parameter` the fields that an object there may have."""
    names = {tool: list(schema.get("properties", ()))}
    for name, parameter in schema.get("properties", {}).items():
        for kind in (parameter, *parameter.get("anyOf", ())):
            definition = schema.get("$defs", {}).get(str(kind.get("$ref", "")).rpartition("/")[2], kind)
            if "properties" in definition:
                names[f"{tool}.{name}"] = list(definition["properties"])
    return names


def sentence(tool: str, error: ValidationError, parameters: Mapping[str, list[str]]) -> str:
    """What is wrong with the arguments; `parameters` is what `parameter_names` returned for the tool."""
    wrong: dict[str, list[str]] = {}
    takes = dict[str, None]()  # sentences, each once
    for problem in error.errors():
        path = [str(part) for part in problem["loc"] if part not in _TYPES]
        name = ".".join(path) or "arguments"
        match problem["type"]:
            case "missing_argument" | "missing":
                wrong[f"{name} is missing"] = []
            case "unexpected_keyword_argument" | "extra_forbidden":
                wrong[f"there is no argument {name}"] = []
                place = ".".join((tool, *path[:-1]))
                known = ", ".join(parameters.get(place, ()))
                if place in parameters:
                    takes[f"{'.'.join(path[:-1]) or 'It'} takes {known or 'no arguments'}."] = None
            case _:
                message = f"{problem['msg'][0].lower()}{problem['msg'][1:]}"
                wrong.setdefault(f"{name}: ", []).append(message)
    problems = "; ".join(name + " or ".join(dict.fromkeys(words)) for name, words in wrong.items())
    return " ".join([f"{tool} was not called, nothing has changed: {problems}.", *takes])
