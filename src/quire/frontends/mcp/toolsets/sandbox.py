"""The `sandbox` tool set: run code in WebAssembly, in a session of the client's own, a named one, or none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal, cast

from fastmcp.tools import ToolResult
from mcp_types import ContentBlock, TextContent
from pydantic import Field

from quire.core.errors import InvalidRequest, NotebookLocked, OperationFailed, QuireError, VersionConflict
from quire.core.limits import sandbox_layers
from quire.core.model import Notebook, Policy
from quire.core.model import RuntimeInfo as Runtime
from quire.core.notebooks.access import Access
from quire.core.notebooks.sandbox_sessions import RUNTIMES
from quire.core.phrases import count
from quire.frontends.mcp import render
from quire.frontends.mcp.results import (
    Done,
    ExecutionResult,
    RuntimeInfo,
    RuntimeList,
    SandboxResult,
    SessionInfo,
    SessionList,
    WorkspaceInfo,
)
from quire.frontends.mcp.tool_context import ToolContext, kernel_state, protection
from quire.frontends.mcp.tool_registry import ToolRegistry

Language = Literal["python", "javascript"]
_NONE = "none"  # as a session's id: run in one that is gone afterwards
_NAMED = 20  # changed files that the text names
_OF_NOTEBOOKS = ("notebook", "error_type", "error_message")  # what a session's result says in its own words
_LANGUAGES = {runtime: language for language, runtime in RUNTIMES.items()}
_ERROR_TYPES: dict[type[QuireError], str] = {  # as results have always named them; others by the name of their class
    InvalidRequest: "Refused",
    OperationFailed: "Failed",
    NotebookLocked: "HeldElsewhere",
    VersionConflict: "Stale",
}
_SAID = "The message says what to do."
_GUIDANCE = {
    "ModuleNotFoundError": "There is most of the standard library, what list_runtimes names, and the workspace.",
    "ImportError": "What needs a network, processes or native libraries is not there in WebAssembly.",
    "FileNotFoundError": "Code sees its workspace, where it starts, and what the operator mounted; nothing else.",
    "PermissionError": "Code may write in its workspace only; mounts are read-only unless the operator says so.",
    "MemoryError": "Use less at once, or create_session with a larger memory_bytes (setting wasm.memory_bytes).",
    "RecursionError": "Use a loop: the stack of a sandbox is small.",
    "SyntaxError": "Correct the line that is shown, and call again.",
    "Timeout": "Call again with a larger timeout, or do less at once.",
    "Crashed": "The session goes on as the message says; run a smaller part of the code.",
    "ApprovalDenied": 'A person is asked where the client can ask one (elicitation) and the session is not "none".',
    "Interrupted": "The session goes on; call again if it is still wanted.",
    "FuelExhausted": "Do less in one call, or create_session with more fuel (setting wasm.fuel).",
    "OutOfMemory": "Use less at once, or create_session with a larger memory_bytes (setting wasm.memory_bytes).",
    "NeverSettles": "Settle what is awaited: nothing that runs on after the cell could do it.",
    "CallsExhausted": "Ask for more with each call, or go on in another call of execute_code.",
    "ReferenceError": "What Node or a browser has (fetch, require, process) is not here: use files, caps or a module.",
}


def register(registry: ToolRegistry) -> None:
    _code(registry)
    _sessions(registry)


def _code(registry: ToolRegistry) -> None:
    async def execute_code(
        ctx: ToolContext,
        code: str,
        language: Language | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> ToolResult:
        """Run code in a WebAssembly sandbox: no network, no processes, one folder. Variables stay in your session of
        that language (Python unless said); session_id names another, "none" runs it in one that is gone afterwards."""
        # a client of the newer era calls again with the answer, and a session for one call is gone by then
        stays = session_id != _NONE
        its: str = language or "python"
        try:
            async with _session(ctx, language, session_id) as session:
                ctx.record.notebook, its = session.name, _LANGUAGES[session.runtime]
                before = await ctx.app.sandboxes.files.states(session)
                cell, notice = await ctx.run(session, code, timeout=timeout, asks=stays, answers=stays)
                changed, why_not = await _changed(ctx, session, before)
                notice = " ".join(filter(None, (notice, why_not)))
                content, ran = await ctx.render.executed(session, cell, notice)
                answer = _answered(content, ran, session, changed, failed=cell.state.failed, stays=stays)
                return ToolResult(content=content, structured_content=dict(answer), is_error=cell.state.failed)
        except QuireError as error:
            ctx.record.set_error(error)
            return _refused(error, its, session_id if stays else None)

    async def list_runtimes(ctx: ToolContext) -> ToolResult:
        """The ways to run code here: version, packages loaded ahead, what walls code in, or why one cannot start."""
        found: RuntimeList = {"runtimes": [_info(each) for each in await ctx.app.kernels.runtimes.describe_all()]}
        text = "\n".join(_line(each) for each in found["runtimes"]) or "no runtimes: nothing can be run here"
        return ToolResult(content=text, structured_content=dict(found))

    registry.add(execute_code, "Execute code in a sandbox", SandboxResult, open_world=True)
    registry.add(list_runtimes, "List runtimes", RuntimeList, read_only=True)


def _sessions(registry: ToolRegistry) -> None:
    async def create_session(
        ctx: ToolContext,
        language: Language = "python",
        session_id: str | None = None,
        memory_bytes: Annotated[int, Field(ge=2**26, le=2**32)] | None = None,
        fuel: Annotated[int, Field(ge=0)] | None = None,
    ) -> ToolResult:
        """Make a sandbox session with its own variables and folder; fuel is how many instructions a run may take."""
        caller = ctx.client
        if session_id in (_NONE, ""):
            raise InvalidRequest(f"A session cannot be called {session_id!r}: leave it out, or give a name.")
        policy = ctx.app.caller_policy.check_policy(caller, Policy(memory=memory_bytes, fuel=fuel), RUNTIMES[language])
        session = await ctx.app.sandboxes.create(caller, language, session_id, policy)
        await ctx.app.runs.prestart(session)
        said = f"Made session {session.name!r} ({language}). Name it as session_id in execute_code."
        return ToolResult(content=said, structured_content=dict(await _described(ctx, session)))

    async def list_sessions(ctx: ToolContext) -> ToolResult:
        """Your sandbox sessions, each with how it is and where its files are."""
        every = await ctx.app.sandboxes.list_sessions(ctx.client)
        found: SessionList = {"sessions": [await _described(ctx, each) for each in every]}
        lines = [
            f"{each['session_id']}: {each['language']}, {each['state']}, {count(each['runs'], 'run')}"
            + (", used unless another is named" if each["own"] else "")
            for each in found["sessions"]
        ]
        return ToolResult(content="\n".join(lines) or "no sessions yet", structured_content=dict(found))

    async def destroy_session(ctx: ToolContext, session_id: str) -> ToolResult:
        """End a sandbox session and delete it, with its variables, its cells and its files."""
        session = await ctx.app.sandboxes.get(ctx.client, session_id)
        files = "with its files" if await ctx.app.sandboxes.delete(session) else "its files stay: others work there"
        done: Done = {"notebook": session.name, "message": f"Session {session.name!r} is gone, {files}."}
        return ToolResult(content=done["message"], structured_content=dict(done))

    async def get_workspace_info(ctx: ToolContext, session_id: str) -> ToolResult:
        """Where a session's files are, how many, how much they take, and the largest of them."""
        session = await ctx.app.sandboxes.get(ctx.client, session_id, Access.READ)
        use, largest = await ctx.app.sandboxes.files.usage(session)
        info: WorkspaceInfo = {
            "session_id": session.name,
            "workspace": ctx.app.workspace(session),
            "bytes": use.bytes,
            "files": use.files,
            "largest": list(largest),
        }
        said = f"{info['workspace']}: {count(use.files, 'file')}, {render.size(use.bytes)}"
        return ToolResult(content="\n".join([said, *largest]), structured_content=dict(info))

    registry.add(create_session, "Create session", SessionInfo)
    registry.add(list_sessions, "List sessions", SessionList, read_only=True)
    registry.add(destroy_session, "Destroy session", Done, destructive=True)
    registry.add(get_workspace_info, "Workspace of a session", WorkspaceInfo, read_only=True)


@asynccontextmanager
async def _session(ctx: ToolContext, language: Language | None, session_id: str | None) -> AsyncIterator[Notebook]:
    sandboxes, client = ctx.app.sandboxes, ctx.client
    if session_id == _NONE:
        async with sandboxes.temporary(client, language or "python") as session:
            yield session
    elif session_id is None:
        yield await sandboxes.get_or_create_default(client, language or "python")
    else:
        session = await sandboxes.get(client, session_id)
        its = _LANGUAGES[session.runtime]
        if language not in (None, its):
            raise InvalidRequest(
                f"Session {session_id!r} runs {its}, not {language}. Nothing was run. Name another session."
            )
        yield session


async def _changed(ctx: ToolContext, session: Notebook, before: dict[str, tuple[int, int]]) -> tuple[list[str], str]:
    """The files a run has changed, or why they are not known: it ran all the same."""
    try:
        return await ctx.app.sandboxes.files.changed_since(session, before), ""
    except QuireError as error:
        return [], f"Which files it changed is not known: {error}"


def _answered(
    content: list[ContentBlock],
    ran: ExecutionResult,
    session: Notebook,
    changed: list[str],
    *,
    failed: bool,
    stays: bool,
) -> SandboxResult:
    """What an execution answers, and what belongs to a session, in the structure and as lines of the text."""
    result = cast(SandboxResult, {name: value for name, value in ran.items() if name not in _OF_NOTEBOOKS})
    result["language"] = _LANGUAGES[session.runtime]
    result["session_id"] = session.name if stays else None
    result["files_changed"] = changed
    if changed:
        some = ", ".join(changed[:_NAMED])
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        content.append(TextContent(type="text", text=f"files changed: {some}{more}"))
    if failed:
        kind = ran["error_type"] or ran["state"]
        guidance = _GUIDANCE.get(kind, "")
        result["error"] = {"type": kind, "message": ran["error_message"] or "", "guidance": guidance}
        if guidance and not any(guidance in each.text for each in content if isinstance(each, TextContent)):
            content.append(TextContent(type="text", text=guidance))
    return result


def _refused(error: QuireError, language: str, session_id: str | None) -> ToolResult:
    """The same of code that was not run, or could not be."""
    result: SandboxResult = {
        "success": False,
        "state": "FAILED" if isinstance(error, OperationFailed) else "REFUSED",
        "stdout": "",
        "stderr": "",
        "return_value": None,
        "language": language,
        "session_id": session_id,
        "outputs": [],
        "files_changed": [],
        "error": {
            "type": _ERROR_TYPES.get(type(error), type(error).__name__),
            "message": str(error),
            "guidance": _SAID,
        },
    }
    return ToolResult(content=str(error), structured_content=dict(result), is_error=True)


async def _described(ctx: ToolContext, session: Notebook) -> SessionInfo:
    language = _LANGUAGES[session.runtime]
    state, _ = await kernel_state(ctx.app, session)
    idle = {status.id: status.idle for status in ctx.app.kernels.slots.list_live()}.get(session.id)
    return {
        "session_id": session.name,
        "language": language,
        "runtime": session.runtime,
        "own": session.name == ctx.app.sandboxes.default_name(ctx.client, language),
        "runs": session.runs,
        "state": state,
        "protection": protection(ctx.app, session),
        "workspace": ctx.app.workspace(session),
        "idle_seconds": round(idle, 1) if idle is not None else None,
    }


def _info(runtime: Runtime) -> RuntimeInfo:
    return {
        "name": runtime.name,
        "version": runtime.version,
        "packages": list(runtime.packages),
        "layers": {layer.name: layer.why_not or "on" for layer in runtime.layers},
        "sandbox": sandbox_layers.describe_layers(runtime.layers),
        "why_not": runtime.why_not,
    }


def _line(info: RuntimeInfo) -> str:
    if info["why_not"]:
        return f"{info['name']}: cannot start here: {info['why_not']}"
    packages = ", ".join(info["packages"]) or "no packages"
    return f"{info['name']} {info['version']}: {packages} loaded ahead; sandbox: {info['sandbox']}"
