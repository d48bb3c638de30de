"""The `files` tool set: what lies in a notebook's workspace, brought out and put in."""

import base64 as encoding
import binascii
import mimetypes
import time
from dataclasses import replace

from fastmcp.tools import ToolResult
from mcp_types import BlobResourceContents, ContentBlock, EmbeddedResource, ImageContent, TextContent

from quire.core.errors import InvalidRequest
from quire.core.limits.workspace_paths import display_path
from quire.core.model import Notebook
from quire.core.notebooks.access import Access
from quire.core.notebooks.files import as_text
from quire.core.notebooks.images import FORMATS, dimensions
from quire.core.ports.files import Entry, FileSlice, Listing
from quire.frontends.mcp import render
from quire.frontends.mcp.results import FileInfo, FileList, FilePart, FileWritten
from quire.frontends.mcp.tool_context import ToolContext
from quire.frontends.mcp.tool_registry import ToolRegistry

_PICTURE_BYTES = 700_000  # of a picture that is shown if the call sets no limit


def register(registry: ToolRegistry) -> None:
    async def list_files(ctx: ToolContext, path: str = ".", notebook: str | None = None) -> ToolResult:
        """What a folder of the notebook's workspace holds: names, sizes, when they were changed."""
        book = await ctx.notebook(notebook, Access.READ)
        path = ctx.app.files.relative_path(book, path)
        found = await ctx.app.files.list(book, path)
        listed: FileList = {
            "notebook": book.title,
            "path": path,
            "files": [_info(each) for each in found.entries],
            "more": found.more,
        }
        return ToolResult(content=_table(found, ctx.app.files.warning(book)), structured_content=dict(listed))

    async def read_file(
        ctx: ToolContext, path: str, start: int = 0, limit: int | None = None, notebook: str | None = None
    ) -> ToolResult:
        """A file of the workspace: text as text, a picture as a picture, anything else as base64. start and limit are
        in bytes; a long file comes in parts, and the answer says where to go on."""
        book = await ctx.notebook(notebook, Access.READ)
        path = ctx.app.files.relative_path(book, path)
        most = min(_PICTURE_BYTES, ctx.app.files.max_bytes)
        piece = await ctx.app.files.read(book, path, start, most if limit is None else limit)
        return _shown(book, path, piece, ctx.result_chars if limit is None else limit)

    async def write_file(
        ctx: ToolContext,
        path: str,
        text: str | None = None,
        base64: str | None = None,
        append: bool = False,
        notebook: str | None = None,
    ) -> ToolResult:
        """Write text, or the bytes that base64 says, to a file of the workspace: in place of what it holds, or (append)
        after that. All of it or nothing; folders on the way are made."""
        data = _data(text, base64)
        book = await ctx.notebook(notebook)
        path = ctx.app.files.relative_path(book, path)
        size = await ctx.app.files.write(book, path, data, append=append)
        done: FileWritten = {"notebook": book.title, "path": path, "uri": render.file_uri(book, path), "bytes": size}
        said = f"Wrote {len(data):,} bytes; {display_path(path)} has {size:,} bytes."
        return ToolResult(content=said, structured_content=dict(done))

    registry.add(list_files, "List files", FileList, read_only=True)
    registry.add(read_file, "Read file", FilePart, read_only=True)
    registry.add(write_file, "Write file", FileWritten, destructive=True)


def mime_of(path: str, text: bool) -> str:
    """By its name, where that can be so."""
    guessed = mimetypes.guess_type(path)[0]
    if text:
        return guessed or "text/plain"
    return guessed if guessed and not guessed.startswith("text/") else "application/octet-stream"


def _info(entry: Entry) -> FileInfo:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(max(0, min(entry.modified, 2**37))))
    name = entry.name if _is_utf8(entry.name) else display_path(entry.name)
    return {"name": name, "kind": entry.kind, "bytes": entry.size, "modified": moment}


def _table(found: Listing, warning: str) -> str:
    rows = [_row(each, _info(each)) for each in found.entries]
    if found.more:
        rows.append(f"... {'' if found.whole else 'at least '}{found.more:,} more; os.scandir in a cell shows all")
    if warning:
        rows.append(f"[{warning}]")
    return "\n".join(rows) or "no files"


def _row(entry: Entry, info: FileInfo) -> str:
    size = f"{entry.size:>12,}" if entry.kind == "file" else f"{entry.kind:>12}"
    end = "/" if entry.kind == "folder" else ""
    return f"{size}  {info['modified'][:19].replace('T', ' ')}  {display_path(entry.name)}{end}"


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _data(text: str | None, base64: str | None) -> bytes:
    if (text is None) == (base64 is None):
        raise InvalidRequest("Give either text or base64. Nothing was written.")
    try:
        if text is not None:
            return text.encode("utf-8")
        return encoding.b64decode(base64 or "", validate=True)
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"The text holds a lone surrogate at character {error.start}; nothing was written."
        ) from None
    except (binascii.Error, ValueError):
        raise InvalidRequest("base64 is not valid base64. Nothing was written.") from None


def _shown(book: Notebook, path: str, piece: FileSlice, limit: int) -> ToolResult:
    """A picture that is there whole, text, or bytes: in this order, what it can be shown as."""
    uri = render.file_uri(book, path)
    mime = mime_of(path, text=False)
    whole = not piece.start and len(piece.data) == piece.total
    if whole and mime in FORMATS and mime != "image/svg+xml" and dimensions(piece.data, mime)[0]:
        return _answer(book, path, piece, "image", mime, piece.total, _picture(piece, mime))
    piece = replace(piece, data=piece.data[:limit])
    text = as_text(piece)
    if text is not None:
        answer = _answer(book, path, piece, "text", mime_of(path, text=True), text[1], [])
        answer.content.insert(0, TextContent(type="text", text=text[0]))
        assert answer.structured_content is not None
        answer.structured_content["text"] = text[0]
        return answer
    data = encoding.b64encode(piece.data).decode("ascii")
    blob = EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=mime, blob=data))
    return _answer(book, path, piece, "binary", mime, piece.start + len(piece.data), [blob])


def _picture(piece: FileSlice, mime: str) -> list[ContentBlock]:
    return [ImageContent(type="image", data=encoding.b64encode(piece.data).decode("ascii"), mime_type=mime)]


def _answer(
    book: Notebook, path: str, piece: FileSlice, kind: str, mime: str, end: int, content: list[ContentBlock]
) -> ToolResult:
    uri = render.file_uri(book, path)
    part: FilePart = {
        "notebook": book.title,
        "path": path,
        "uri": uri,
        "kind": kind,
        "mime": mime,
        "bytes": piece.total,
        "start": piece.start,
        "end": end,
    }
    said = f"[{display_path(path)}: {mime}, {piece.total:,} bytes]"
    if end < piece.total or piece.start:
        said = f"[{display_path(path)}: {mime}, bytes {piece.start:,} to {end:,} of {piece.total:,}; whole: {uri}"
        said += f"; read_file(start={end}) goes on]" if end < piece.total else "]"
    return ToolResult(content=[*content, TextContent(type="text", text=said)], structured_content=dict(part))
