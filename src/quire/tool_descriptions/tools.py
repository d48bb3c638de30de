"""Names, parameters, signatures and documentation of tools in Python. Never raises, for any input."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from quire.tool_descriptions import ranking, schemas
from quire.tool_descriptions.schemas import Shape

RESERVED = frozenset(("describe", "resources", "read", "prompts", "prompt"))
"""Methods that every capability has. A tool with such a name gets a trailing underscore."""

TIMEOUT = "_timeout"  # Quire's own argument
_MAX_LINE_CHARS = 100  # of a description
_MAX_SIGNATURE_CHARS = 160  # of a signature in a line
_MAX_DEFAULT_CHARS = 40  # of a default value
_MAX_PARAMETERS = 200
_MAX_NAME_CHARS = 100  # characters
_MAX_DOC_CHARS = 20_000  # characters
RETURNS_TEXT = "Returns its text; where that is JSON, .json() reads it. Pictures and resources come as objects."
_HINTS = {
    "readOnlyHint": "It only reads.",
    "destructiveHint": "It may destroy or overwrite something.",
    "idempotentHint": "Calling it twice is as calling it once.",
    "openWorldHint": "It reaches out to other systems.",
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    name: str  # in Python
    original: str
    annotation: str
    required: bool
    default: Any = None
    description: str = ""


def python_name(name: Any) -> str:
    """The name as a Python identifier: `get-sum` becomes get_sum."""
    name = name if isinstance(name, str) else str(name)
    text = unicodedata.normalize("NFKC", name[:_MAX_NAME_CHARS])[:_MAX_NAME_CHARS]
    text = "".join(char if char == "_" or char.isalnum() else "_" for char in text)
    if not f"_{text}".isidentifier():  # digits that identifiers cannot have
        text = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if text.startswith("__"):
        text = "_" + text.lstrip("_")
    if not text.isidentifier():
        text = f"_{text}"
    return f"{text}_" if keyword.iskeyword(text) else text


def python_names(names: Iterable[Any], reserved: Collection[str] = ()) -> dict[str, str]:
    """A unique identifier for each name. Valid identifiers stay; conflicting ones get a number."""
    listed = list(dict.fromkeys(name for name in names if isinstance(name, str)))
    wanted = {name: python_name(name) for name in listed}
    wanted = {name: f"{python}_" if python in reserved else python for name, python in wanted.items()}
    taken = {name for name in listed if wanted[name] == name}
    found: dict[str, str] = {}
    for name in listed:
        python, count = wanted[name], 2
        while python != name and python in taken:
            python, count = f"{wanted[name].rstrip('_')}_{count}", count + 1
        taken.add(python)
        found[name] = python
    return found


def methods(entry: Any) -> dict[str, dict[str, Any]]:
    """The tools of a catalog entry by Python name."""
    listed = entry.get("tools") if isinstance(entry, dict) else None
    listed_tools = [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    tools = {tool["name"]: tool for tool in listed_tools if isinstance(tool.get("name"), str)}
    return {python: tools[name] for name, python in python_names(tools, RESERVED).items()}


def parameters(input_schema: Any) -> list[Parameter]:
    """Required parameters first, otherwise in the order of the schema."""
    found = schemas.properties(input_schema, input_schema)
    needed = schemas.required(input_schema, input_schema)
    names = python_names(list(found)[:_MAX_PARAMETERS], (TIMEOUT,))
    listed = []
    for original, name in names.items():
        property_ = schemas.resolve(found[original], input_schema)
        property_ = property_ if isinstance(property_, dict) else {}
        listed.append(
            Parameter(
                name=name,
                original=original,
                annotation=annotation(schemas.shape(property_, input_schema)),
                required=original in needed and "default" not in property_,
                default=property_.get("default"),
                description=_text(property_.get("description")),
            )
        )
    return sorted(listed, key=lambda parameter: not parameter.required)


def accepts_unknown_arguments(input_schema: Any) -> bool:
    """Whether it accepts arguments that it does not name."""
    subschemas = schemas.subschemas(input_schema, input_schema)
    return any(part.get("additionalProperties") not in (None, False) for part in subschemas)


def annotation(shape: Shape, named: bool = False) -> str:
    """A shape as annotation; with `named`, objects are named by their titles."""
    match shape:
        case schemas.PlainShape(name):
            return name
        case schemas.LiteralShape(values):
            return f"Literal[{', '.join(map(repr, values))}]"
        case schemas.ListShape(item):
            return "list" if item == schemas.ANY else f"list[{annotation(item, named)}]"
        case schemas.DictShape(value):
            return "dict" if value == schemas.ANY else f"dict[str, {annotation(value, named)}]"
        case schemas.UnionShape(options):
            return " | ".join(dict.fromkeys(annotation(option, named) for option in options))
        case schemas.ObjectShape(title):
            return title if named and title else "dict"


def is_wrapped(output: Any) -> bool:
    """Whether the result is wrapped in {"result": ...}, since structured content must be an object."""
    return (
        isinstance(output, dict)
        and output.get("x-fastmcp-wrap-result") is True
        and "result" in schemas.properties(output, output)
    )


def result_shape(tool: Any) -> Shape | None:
    """The shape of the result, or None if the tool does not declare it. An object at the top gets a title."""
    output = tool.get("output") if isinstance(tool, dict) else None
    if not isinstance(output, dict) or not output:
        return None
    inner = schemas.properties(output, output)["result"] if is_wrapped(output) else output
    shape = schemas.shape(inner, output)
    if isinstance(shape, schemas.ObjectShape):
        own = schemas.camel_case(_text(tool.get("name"))[:_MAX_NAME_CHARS])
        return schemas.ObjectShape(shape.title or f"{own or 'Tool'}Result", shape.fields)
    return shape


def return_type(tool: Any) -> str:
    shape = result_shape(tool)
    return "Text" if shape is None else annotation(shape, named=True)


def signature(tool: Any, name: str = "", *, most: int = 0) -> str:
    """`search(query: str, max: int = 10) -> SearchResult`. With `most`, optional parameters that would exceed this
    number of characters are left out. `name` overrides the tool's own name."""
    if not isinstance(tool, dict):
        return "?()"
    if isinstance(tool.get("signature"), str):
        return str(tool["signature"])
    end = f") -> {return_type(tool)}"
    begin = f"{name or python_name(tool.get('name', ''))}("
    shown: list[str] = []
    size = len(begin) + len(end)
    for parameter in parameters(tool.get("input")):
        text = _parameter_text(parameter)
        if most and size + len(text) > most and not parameter.required:
            shown.append("...")
            break
        shown.append(text)
        size += len(text) + 2
    if accepts_unknown_arguments(tool.get("input")):
        shown.append("**more")
    return f"{begin}{', '.join(shown)}{end}"


def _parameter_text(parameter: Parameter) -> str:
    text = parameter.name if parameter.annotation == "Any" else f"{parameter.name}: {parameter.annotation}"
    if parameter.required:
        return text
    return f"{text}{'=' if parameter.annotation == 'Any' else ' = '}{default_text(parameter.default)}"


def default_text(default: Any) -> str:
    text = repr(default)
    return text if len(text) <= _MAX_DEFAULT_CHARS else "..."


def first_line(description: Any, most: int = _MAX_LINE_CHARS) -> str:
    """The first sentence, cut to `most` characters."""
    text = _text(description).strip()
    paragraph = " ".join(re.split(r"\n\s*\n", text, maxsplit=1)[0][: most * 10].split())
    sentence = re.match(r".{8,}?[.!?](?=\s)", paragraph)
    summary = sentence[0] if sentence and len(sentence[0]) <= most else paragraph
    summary = summary.removesuffix(".")
    return summary if len(summary) <= most else f"{summary[: most - 1].rstrip()}…"


def argument_error(tool: Any, name: str, path: tuple[str | int, ...], what: str) -> str:
    """`argument labels[1] must be a string, not 1. Its signature: ...`, with arguments by their Python names."""
    signature_ = signature(tool, name)
    if not path:
        return f"what it is given {what}. Its signature: {signature_}"
    names = {parameter.original: parameter.name for parameter in parameters(tool.get("input"))}
    first = names.get(str(path[0]), str(path[0]))
    inner = "".join(f"[{part!r}]" for part in path[1:])
    return f"argument {first}{inner} {what}. Its signature: {signature_}"


def summary_line(tool: Any, name: str = "") -> str:
    """Signature and first sentence."""
    about = first_line(tool.get("description") if isinstance(tool, dict) else "")
    signature_ = signature(tool, name, most=_MAX_SIGNATURE_CHARS)
    return f"{signature_}  # {about}" if about else signature_


def documentation(capability: str, tool: Any, name: str = "") -> str:
    """The full documentation of one method."""
    if not isinstance(tool, dict):
        return ""
    called = name or python_name(tool.get("name", ""))
    sections = [f"{capability}.{signature(tool, called)}" if capability else signature(tool, called)]
    if _text(tool.get("description")).strip():
        sections.append(_text(tool["description"]).strip())
    listed = [_parameter_documentation(parameter, tool.get("input")) for parameter in parameters(tool.get("input"))]
    if listed:
        sections.append("\n".join(["Parameters", *listed]))
    shape = result_shape(tool)
    if shape is not None and (definitions := typed_dicts(shape)):
        sections.append(definitions)
    elif shape is None and "signature" not in tool:
        sections.append(RETURNS_TEXT)
    hints = tool.get("hints")
    sentences = [sentence for key, sentence in _HINTS.items() if isinstance(hints, dict) and hints.get(key) is True]
    if sentences:
        sections.append(" ".join(sentences))
    if called != tool.get("name") and isinstance(tool.get("name"), str):
        sections.append(f"Its own name is {tool['name'][:_MAX_NAME_CHARS]!r}.")
    text = "\n\n".join(sections)
    more = f"\n[... {len(text) - _MAX_DOC_CHARS:,} characters more]" if len(text) > _MAX_DOC_CHARS else ""
    return text[:_MAX_DOC_CHARS] + more


def _parameter_documentation(parameter: Parameter, schema: Any) -> str:
    own = schemas.resolve(schemas.properties(schema, schema).get(parameter.original), schema)
    own = own if isinstance(own, dict) else {}
    text = f"    {parameter.name}: {parameter.annotation}"
    if not parameter.required:
        text += f" = {default_text(parameter.default)}" if parameter.default is not None else ", optional"
    choices = own.get("enum")
    if isinstance(choices, list) and "Literal" not in parameter.annotation:
        text += f", one of {', '.join(map(repr, choices[:50]))}"
    limits = [f"{word} {own[word]}" for word in _LIMIT_KEYWORDS if type(own.get(word)) in (int, float, str)]
    text += f" ({', '.join(limits)})" if limits else ""
    shape = schemas.shape(own, schema)
    inner = shape.item if isinstance(shape, schemas.ListShape) else shape
    if isinstance(inner, schemas.ObjectShape):
        keys = (f"{field.key!r}: {annotation(field.shape)}{'' if field.required else '?'}" for field in inner.fields)
        text += f" {{{', '.join(keys)}}}"
    if parameter.original != parameter.name:
        text += f" [{parameter.original}]"
    return f"{text}\n        {' '.join(parameter.description.split())}" if parameter.description else text


_LIMIT_KEYWORDS = ("minimum", "maximum", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems")


def typed_dicts(shape: Shape) -> str:
    """The TypedDicts of a result as source code, the outer one first."""
    classes: dict[str, str] = {}

    def put(shape_: Shape) -> None:
        match shape_:
            case schemas.ListShape(inner) | schemas.DictShape(inner):
                put(inner)
            case schemas.UnionShape(options):
                for option in options:
                    put(option)
            case schemas.ObjectShape(title, fields) if title not in classes:
                lines = [
                    f"    {field.key}: {annotation(field.shape, named=True)}{'' if field.required else '  # optional'}"
                    for field in fields
                ]
                if title:
                    classes[title] = "\n".join([f"class {title}(TypedDict):", *lines])
                for field in fields:
                    put(field.shape)

    put(shape)
    return "\n\n".join(classes.values())


def overview(entry: Any) -> str:
    """A capability with one line for each method."""
    if not isinstance(entry, dict):
        return ""
    about = first_line(entry.get("about"))
    head = f"{_text(entry.get('name'))}: {about}" if about else _text(entry.get("name"))
    return "\n".join([head, *(f"  {summary_line(tool, name)}" for name, tool in methods(entry).items())])


def search(entries: Iterable[Any], query: Any, limit: int = 5) -> list[tuple[str, dict[str, Any]]]:
    """(capability, tool) of the best matches in all entries of a catalog."""
    offered = [
        (entry["name"], tool)
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        for tool in methods(entry).values()
    ]
    return ranking.best_matches(offered, query, limit)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
