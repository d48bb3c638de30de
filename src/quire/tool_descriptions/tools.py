"""A tool as Python sees it: its name, its parameters, its signature, its documentation. Pure, and total."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from quire.tool_descriptions import ranking, schemas
from quire.tool_descriptions.schemas import Either, Fields, Items, Mapping, Plain, Shape, Values

RESERVED = frozenset(("describe", "resources", "read", "prompts", "prompt"))
"""Methods that every capability has; a tool of that name gets an underscore at its end."""

TIMEOUT = "_timeout"  # the one argument that is ours
_LINE = 100  # characters of a description in a line
_SIGNATURE = 160  # characters of a signature in a line
_DEFAULT = 40  # characters of a default
_PARAMETERS = 200
_NAME = 100  # characters
_DOCUMENT = 20_000  # characters
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


def identifier(name: Any) -> str:
    """A name that Python can say: `get-sum` is get_sum."""
    text = unicodedata.normalize("NFKC", name if isinstance(name, str) else str(name)[:_NAME])[:_NAME]
    text = "".join(each if each == "_" or each.isalnum() else "_" for each in text)
    if not f"_{text}".isidentifier():  # digits that are no digits of an identifier
        text = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if text.startswith("__"):
        text = "_" + text.lstrip("_")
    if not text.isidentifier():
        text = f"_{text}"
    return f"{text}_" if keyword.iskeyword(text) else text


def identifiers(names: Iterable[Any], reserved: Collection[str] = ()) -> dict[str, str]:
    """Each name's Python name, no two alike. One that needs no change keeps its own; others are counted on."""
    listed = list(dict.fromkeys(name for name in names if isinstance(name, str)))
    wanted = {name: identifier(name) for name in listed}
    wanted = {name: f"{each}_" if each in reserved else each for name, each in wanted.items()}
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
    """The tools of a catalog's entry by their Python names."""
    listed = entry.get("tools") if isinstance(entry, dict) else None
    every = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    tools = {each["name"]: each for each in every if isinstance(each.get("name"), str)}
    return {python: tools[name] for name, python in identifiers(tools, RESERVED).items()}


def parameters(input_schema: Any) -> list[Parameter]:
    """Required first, else in the schema's order."""
    found = schemas.properties(input_schema, input_schema)
    needed = schemas.required(input_schema, input_schema)
    names = identifiers(list(found)[:_PARAMETERS], (TIMEOUT,))
    listed = []
    for original, name in names.items():
        said = schemas.resolved(found[original], input_schema)
        said = said if isinstance(said, dict) else {}
        listed.append(
            Parameter(
                name=name,
                original=original,
                annotation=annotation(schemas.shape(said, input_schema)),
                required=original in needed and "default" not in said,
                default=said.get("default"),
                description=_text(said.get("description")),
            )
        )
    return sorted(listed, key=lambda each: not each.required)


def takes_more(input_schema: Any) -> bool:
    """Whether it says that it takes arguments it does not name."""
    every = schemas.parts(input_schema, input_schema)
    return any(part.get("additionalProperties") not in (None, False) for part in every)


def annotation(shape: Shape, named: bool = False) -> str:
    """A shape in Python's words; objects by their titles where they are `named`."""
    match shape:
        case Plain(name):
            return name
        case Values(values):
            return f"Literal[{', '.join(map(repr, values))}]"
        case Items(of):
            return "list" if of == schemas.ANY else f"list[{annotation(of, named)}]"
        case Mapping(of):
            return "dict" if of == schemas.ANY else f"dict[str, {annotation(of, named)}]"
        case Either(of):
            return " | ".join(dict.fromkeys(annotation(each, named) for each in of))
        case Fields(title):
            return title if named and title else "dict"


def wraps(output: Any) -> bool:
    """Whether what is returned lies under "result", only because structured content must be an object."""
    return (
        isinstance(output, dict)
        and output.get("x-fastmcp-wrap-result") is True
        and "result" in schemas.properties(output, output)
    )


def result_shape(tool: Any) -> Shape | None:
    """What a call returns; None where the tool does not say. An object at the top has a title."""
    output = tool.get("output") if isinstance(tool, dict) else None
    if not isinstance(output, dict) or not output:
        return None
    inner = schemas.properties(output, output)["result"] if wraps(output) else output
    shape = schemas.shape(inner, output)
    if isinstance(shape, Fields):
        own = schemas.camel(_text(tool.get("name"))[:_NAME])
        return Fields(shape.title or f"{own or 'Tool'}Result", shape.fields)
    return shape


def returns(tool: Any) -> str:
    shape = result_shape(tool)
    return "Text" if shape is None else annotation(shape, named=True)


def signature(tool: Any, name: str = "", *, most: int = 0) -> str:
    """`search(query: str, max: int = 10) -> SearchResult`; with `most`, optional ones are left out beyond so many
    characters. `name` is what it is called here, where that is not the tool's own name."""
    if not isinstance(tool, dict):
        return "?()"
    if isinstance(tool.get("signature"), str):
        return str(tool["signature"])
    end = f") -> {returns(tool)}"
    begin = f"{name or identifier(tool.get('name', ''))}("
    said: list[str] = []
    size = len(begin) + len(end)
    for each in parameters(tool.get("input")):
        text = _parameter(each)
        if most and size + len(text) > most and not each.required:
            said.append("...")
            break
        said.append(text)
        size += len(text) + 2
    if takes_more(tool.get("input")):
        said.append("**more")
    return f"{begin}{', '.join(said)}{end}"


def _parameter(each: Parameter) -> str:
    said = each.name if each.annotation == "Any" else f"{each.name}: {each.annotation}"
    if each.required:
        return said
    return f"{said}{'=' if each.annotation == 'Any' else ' = '}{default_text(each.default)}"


def default_text(default: Any) -> str:
    text = repr(default)
    return text if len(text) <= _DEFAULT else "..."


def first_line(description: Any, most: int = _LINE) -> str:
    """Its first sentence, or as much of it as fits in a line."""
    text = _text(description).strip()
    paragraph = " ".join(re.split(r"\n\s*\n", text, maxsplit=1)[0][: most * 10].split())
    sentence = re.match(r".{8,}?[.!?](?=\s)", paragraph)
    said = sentence[0] if sentence and len(sentence[0]) <= most else paragraph
    said = said.removesuffix(".")
    return said if len(said) <= most else f"{said[: most - 1].rstrip()}…"


def argument_error(tool: Any, name: str, path: tuple[str | int, ...], what: str) -> str:
    """`argument labels[1] must be a string, not 1. Its signature: ...`: what is wrong with the value at this path of
    the arguments, which are called what they are called in Python."""
    said = signature(tool, name)
    if not path:
        return f"what it is given {what}. Its signature: {said}"
    names = {each.original: each.name for each in parameters(tool.get("input"))}
    first = names.get(str(path[0]), str(path[0]))
    inner = "".join(f"[{part!r}]" for part in path[1:])
    return f"argument {first}{inner} {what}. Its signature: {said}"


def line(tool: Any, name: str = "") -> str:
    """Signature and first line."""
    about = first_line(tool.get("description") if isinstance(tool, dict) else "")
    said = signature(tool, name, most=_SIGNATURE)
    return f"{said}  # {about}" if about else said


def document(capability: str, tool: Any, name: str = "") -> str:
    """All there is to know of one method."""
    if not isinstance(tool, dict):
        return ""
    called = name or identifier(tool.get("name", ""))
    whole = [f"{capability}.{signature(tool, called)}" if capability else signature(tool, called)]
    if _text(tool.get("description")).strip():
        whole.append(_text(tool["description"]).strip())
    listed = [_argument(each, tool.get("input")) for each in parameters(tool.get("input"))]
    if listed:
        whole.append("\n".join(["Parameters", *listed]))
    shape = result_shape(tool)
    if shape is not None and (said := typed(shape)):
        whole.append(said)
    elif shape is None and "signature" not in tool:
        whole.append(RETURNS_TEXT)
    hints = tool.get("hints")
    told = [words for key, words in _HINTS.items() if isinstance(hints, dict) and hints.get(key) is True]
    if told:
        whole.append(" ".join(told))
    if called != tool.get("name") and isinstance(tool.get("name"), str):
        whole.append(f"Its own name is {tool['name'][:_NAME]!r}.")
    text = "\n\n".join(whole)
    return text if len(text) <= _DOCUMENT else f"{text[:_DOCUMENT]}\n[... {len(text) - _DOCUMENT:,} characters more]"


def _argument(each: Parameter, schema: Any) -> str:
    own = schemas.resolved(schemas.properties(schema, schema).get(each.original), schema)
    own = own if isinstance(own, dict) else {}
    said = f"    {each.name}: {each.annotation}"
    if not each.required:
        said += f" = {default_text(each.default)}" if each.default is not None else ", optional"
    choices = own.get("enum")
    if isinstance(choices, list) and "Literal" not in each.annotation:
        said += f", one of {', '.join(map(repr, choices[:50]))}"
    limits = [f"{word} {own[word]}" for word in _LIMITS if type(own.get(word)) in (int, float, str)]
    said += f" ({', '.join(limits)})" if limits else ""
    shape = schemas.shape(own, schema)
    inner = shape.of if isinstance(shape, Items) else shape
    if isinstance(inner, Fields):
        keys = (f"{field.key!r}: {annotation(field.shape)}{'' if field.required else '?'}" for field in inner.fields)
        said += f" {{{', '.join(keys)}}}"
    if each.original != each.name:
        said += f" [{each.original}]"
    return f"{said}\n        {' '.join(each.description.split())}" if each.description else said


_LIMITS = ("minimum", "maximum", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems")


def typed(shape: Shape) -> str:
    """The TypedDicts of a result in short form, the outer one first."""
    classes: dict[str, str] = {}

    def put(each: Shape) -> None:
        match each:
            case Items(of) | Mapping(of):
                put(of)
            case Either(of):
                for one in of:
                    put(one)
            case Fields(title, fields) if title not in classes:
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
    """A capability in one line per method."""
    if not isinstance(entry, dict):
        return ""
    about = first_line(entry.get("about"))
    head = f"{_text(entry.get('name'))}: {about}" if about else _text(entry.get("name"))
    return "\n".join([head, *(f"  {line(tool, name)}" for name, tool in methods(entry).items())])


def search(entries: Iterable[Any], query: Any, limit: int = 5) -> list[tuple[str, dict[str, Any]]]:
    """(capability, tool) of those that fit the query best, over all entries of a catalog."""
    offered = [
        (entry["name"], tool)
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        for tool in methods(entry).values()
    ]
    return ranking.best(offered, query, limit)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
