"""What the suite expects of calls that end with a question and are made again with the answer (2026-07-28)."""

from __future__ import annotations

from typing import Any

from fastmcp import Context, FastMCP
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    MissingRequiredClientCapabilityErrorData,
    SamplingCapability,
    SamplingMessage,
    TextContent,
)

Answer = str | InputRequiredResult
_NAME = "What is your name?"


def register(server: FastMCP[Any]) -> None:
    _single(server)
    _several(server)
    _capabilities(server)

    @server.prompt
    def test_input_required_result_prompt(ctx: Context) -> Any:
        """Asks before it is made."""
        if (said := _said(ctx, "user_context", "context")) is None:
            question = _person("What context should the prompt use?", "context", "string")
            return InputRequiredResult(input_requests={"user_context": question})
        return f"Work in this context: {said}"


def _single(server: FastMCP[Any]) -> None:
    @server.tool(output_schema=None)
    def test_input_required_result_elicitation(ctx: Context) -> Answer:
        """A person is asked for a name."""
        if (name := _said(ctx, "user_name", "name")) is None:
            return InputRequiredResult(input_requests={"user_name": _person(_NAME, "name", "string")})
        return f"Hello, {name}!"

    @server.tool(output_schema=None)
    def test_streaming_elicitation(ctx: Context) -> Answer:
        """The same, for the suite's look at the stream."""
        if (name := _said(ctx, "user_name", "name")) is None:
            return InputRequiredResult(input_requests={"user_name": _person(_NAME, "name", "string")})
        return f"Hello, {name}!"

    @server.tool(output_schema=None)
    def test_input_required_result_sampling(ctx: Context) -> Answer:
        """The client's model is asked."""
        reply = (ctx.input_responses or {}).get("capital_question")
        if not isinstance(reply, CreateMessageResult):
            return InputRequiredResult(input_requests={"capital_question": _model("What is the capital of France?")})
        return f"The model says: {getattr(reply.content, 'text', '')}"

    @server.tool(output_schema=None)
    def test_input_required_result_list_roots(ctx: Context) -> Answer:
        """The client's folders are asked for."""
        reply = (ctx.input_responses or {}).get("client_roots")
        if not isinstance(reply, ListRootsResult):
            return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
        return f"Roots: {', '.join(str(root.uri) for root in reply.roots)}"


def _several(server: FastMCP[Any]) -> None:
    def confirmed(ctx: Context, state: str) -> Answer:
        if ctx.request_state != state or _said(ctx, "confirm", "ok") is None:
            question = _person("Please confirm", "ok", "boolean")
            return InputRequiredResult(input_requests={"confirm": question}, request_state=state)
        return "state-ok"

    @server.tool(output_schema=None)
    def test_input_required_result_request_state(ctx: Context) -> Answer:
        """What the server gave the client to keep comes back."""
        return confirmed(ctx, "asked to confirm")

    @server.tool(output_schema=None)
    def test_input_required_result_tampered_state(ctx: Context) -> Answer:
        """And where it was changed on the way, the call is refused before it comes here."""
        return confirmed(ctx, "not to be changed")

    @server.tool(output_schema=None)
    def test_input_required_result_multiple_inputs(ctx: Context) -> Answer:
        """Three questions at once."""
        asked: dict[str, InputRequest] = {
            "user_name": _person(_NAME, "name", "string"),
            "greeting": _model("Generate a greeting"),
            "client_roots": ListRootsRequest(),
        }
        if not asked.keys() <= (ctx.input_responses or {}).keys():
            return InputRequiredResult(input_requests=asked, request_state="asked for all three")
        return f"All three are there, {_said(ctx, 'user_name', 'name')}."

    @server.tool(output_schema=None)
    def test_input_required_result_multi_round(ctx: Context) -> Answer:
        """One question after the other."""
        if ctx.request_state is None:
            first = _person("Step 1: What is your name?", "name", "string")
            return InputRequiredResult(input_requests={"step1": first}, request_state="1")
        if ctx.request_state == "1":
            second = _person("Step 2: What is your favorite color?", "color", "string")
            state = f"2 {_said(ctx, 'step1', 'name')}"
            return InputRequiredResult(input_requests={"step2": second}, request_state=state)
        return f"{ctx.request_state[2:]} likes {_said(ctx, 'step2', 'color')}."


def _capabilities(server: FastMCP[Any]) -> None:
    @server.tool(output_schema=None)
    def test_input_required_result_capabilities(ctx: Context) -> Answer:
        """Asks for no more than the client can."""
        can = ctx.session.client_capabilities or ClientCapabilities()
        asked: dict[str, InputRequest] = {}
        if can.elicitation is not None:
            asked["user_name"] = _person(_NAME, "name", "string")
        if can.sampling is not None:
            asked["greeting"] = _model("Generate a greeting")
        if asked and not ctx.input_responses:
            return InputRequiredResult(input_requests=asked)
        return "Nothing more to ask."

    @server.tool(output_schema=None)
    def test_missing_capability(ctx: Context) -> str:
        """Needs a client that has a model."""
        can = ctx.session.client_capabilities
        if can is None or can.sampling is None:
            needed = ClientCapabilities(sampling=SamplingCapability())
            data = MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY,
                message="This needs a client that declares sampling",
                data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
            )
        return "The client has a model."


def _person(message: str, name: str, kind: str) -> ElicitRequest:
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _model(question: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=question))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))


def _said(ctx: Context, question: str, name: str) -> Any:
    """What a person answered, None where it is not an answer to this."""
    reply = (ctx.input_responses or {}).get(question)
    return (reply.content or {}).get(name) if isinstance(reply, ElicitResult) and reply.action == "accept" else None
