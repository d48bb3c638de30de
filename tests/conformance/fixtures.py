"""What the official conformance suite expects of any server: tools, resources and prompts by fixed names."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Annotated, Any

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.resources import ResourceContent, ResourceResult
from fastmcp.tools import FunctionTool
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

_STEP = 0.05  # seconds between two messages of one call


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


def _wav() -> bytes:
    """Eight samples of silence."""
    samples = bytes(8)
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


PNG = base64.b64encode(_png()).decode()
WAV = base64.b64encode(_wav()).decode()


def register(server: FastMCP[Any]) -> None:
    _contents(server)
    _messages(server)
    _questions(server)
    _schemas(server)
    _resources(server)
    _prompts(server)


def _contents(server: FastMCP[Any]) -> None:
    @server.tool(output_schema=None)
    def test_simple_text() -> str:
        """A text."""
        return "This is a simple text response for testing."

    @server.tool
    def test_image_content() -> ImageContent:
        """A picture."""
        return ImageContent(type="image", data=PNG, mime_type="image/png")

    @server.tool
    def test_audio_content() -> AudioContent:
        """A sound."""
        return AudioContent(type="audio", data=WAV, mime_type="audio/wav")

    @server.tool
    def test_embedded_resource() -> EmbeddedResource:
        """A resource inside the answer."""
        return _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")

    @server.tool(output_schema=None)
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        """All three."""
        data = json.dumps({"test": "data", "value": 123})
        return [
            TextContent(type="text", text="Multiple content types test:"),
            ImageContent(type="image", data=PNG, mime_type="image/png"),
            _embedded("test://mixed-content-resource", "application/json", data),
        ]

    @server.tool
    def test_error_handling() -> str:
        """Fails."""
        raise ToolError("This tool intentionally returns an error for testing")


def _messages(server: FastMCP[Any]) -> None:
    async def say(ctx: Context) -> None:
        await ctx.info("Tool execution started")
        await anyio.sleep(_STEP)
        await ctx.info("Tool processing data")
        await anyio.sleep(_STEP)
        await ctx.info("Tool execution completed")

    @server.tool(output_schema=None)
    async def test_tool_with_logging(ctx: Context) -> str:
        """Logs while it works."""
        await say(ctx)
        return "Tool with logging executed successfully."

    @server.tool(output_schema=None)
    async def test_logging_tool(ctx: Context) -> str:
        """The same; the newer suite's name for it."""
        await say(ctx)
        return "Logged, where the request asked for it."

    @server.tool(output_schema=None)
    async def test_tool_with_progress(ctx: Context) -> str:
        """Says how far it is."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
            await anyio.sleep(_STEP)
        return "Tool with progress executed successfully."


def _questions(server: FastMCP[Any]) -> None:
    async def ask(ctx: Context, message: str, schema: dict[str, Any]) -> str:
        reply = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
        return f"action={reply.action}, content={json.dumps(reply.content or {})}"

    @server.tool(output_schema=None)
    async def test_sampling(ctx: Context, prompt: str) -> str:
        """Asks the client's model."""
        asked = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        reply = await ctx.session.create_message([asked], max_tokens=100, related_request_id=ctx.request_id)
        return f"LLM response: {getattr(reply.content, 'text', reply.content)}"

    @server.tool(output_schema=None)
    async def test_elicitation(ctx: Context, message: str) -> str:
        """Asks a person."""
        schema = _form(
            username={"type": "string", "description": "User's response"},
            email={"type": "string", "description": "User's email address"},
        )
        return f"User response: {await ask(ctx, message, schema)}"

    @server.tool(output_schema=None)
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        """Asks with an answer for each kind filled in."""
        schema = _form(
            name={"type": "string", "default": "John Doe"},
            age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5},
            status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            verified={"type": "boolean", "default": True},
        )
        return f"Elicitation completed: {await ask(ctx, 'Review the defaults', {**schema, 'required': []})}"

    @server.tool(output_schema=None)
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        """Asks for one of several, said in each way there is."""
        plain = ["option1", "option2", "option3"]
        titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(_WORDS, 1)]
        names = ["Option One", "Option Two", "Option Three"]
        schema = _form(
            untitledSingle={"type": "string", "enum": plain},
            titledSingle={"type": "string", "oneOf": titled},
            legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
            untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
            titledMulti={"type": "array", "items": {"anyOf": titled}},
        )
        return f"Elicitation completed: {await ask(ctx, 'Choose', {**schema, 'required': []})}"


_WORDS = ("First", "Second", "Third")


def _schemas(server: FastMCP[Any]) -> None:
    @server.tool(output_schema=None)
    def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Has an argument that comes as a header, too."""
        return region

    def json_schema_2020_12_tool(name: str = "") -> str:
        """Has a schema that uses much of what the dialect offers."""
        return name

    tool = FunctionTool.from_function(json_schema_2020_12_tool, output_schema=None)
    server.add_tool(tool.model_copy(update={"parameters": _DIALECT}))


_DIALECT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _resources(server: FastMCP[Any]) -> None:
    @server.resource("test://static-text", mime_type="text/plain", description="A text")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png", description="A picture")
    def static_binary() -> ResourceResult:
        return ResourceResult([ResourceContent(base64.b64decode(PNG), mime_type="image/png")])

    @server.resource("test://watched-resource", mime_type="text/plain", description="One to subscribe to")
    def watched() -> str:
        return "Watched resource content."

    @server.resource("test://template/{id}/data", mime_type="application/json", description="One for each id")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def _prompts(server: FastMCP[Any]) -> None:
    @server.prompt
    def test_simple_prompt() -> str:
        """A text."""
        return "This is a simple prompt for testing."

    @server.prompt
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A text with two words put in."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:
        """A resource, and what to do with it."""
        resource = _embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
        return [Message(resource), Message("Please process the embedded resource above.")]

    @server.prompt
    def test_prompt_with_image() -> list[Message]:
        """A picture, and what to do with it."""
        image = ImageContent(type="image", data=PNG, mime_type="image/png")
        return [Message(image), Message("Please analyze the image above.")]


def _embedded(uri: str, mime: str, text: str) -> EmbeddedResource:
    contents: TextResourceContents | BlobResourceContents = TextResourceContents(uri=uri, mime_type=mime, text=text)
    return EmbeddedResource(type="resource", resource=contents)


def _form(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
