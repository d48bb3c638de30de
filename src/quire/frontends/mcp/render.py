"""Answers that show cells: compact text, pictures and structured content."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

import anyio
import anyio.to_thread
from fastmcp.tools import ToolResult
from mcp_types import ContentBlock, ImageContent, TextContent

from quire.core.checkpoints.timeline import RollbackResult
from quire.core.model import Blob, Cell, CellKind, CellState, Notebook, Output, OutputType
from quire.core.notebooks.images import FORMATS, PREVIEW
from quire.core.notebooks.outputs import Outputs, find_image
from quire.core.notebooks.sandbox_sessions import RUNTIMES
from quire.core.runs import model_text
from quire.frontends.mcp.guidance import Guidance
from quire.frontends.mcp.headlines import headline
from quire.frontends.mcp.results import CellInfo, ExecutionResult, OutputInfo, ShownCell

_THREAD_CHARS = 200_000  # longer texts are converted in a thread
_MAX_PICTURES = 4  # in one answer; the text has the addresses of the others
_MAX_PICTURE_BYTES = 700_000  # of a picture in an answer


class Renderer:
    """Turns cells into answers with at most `limit` characters of output."""

    def __init__(self, outputs: Outputs, guidance: Guidance, limit: int) -> None:
        self._outputs = outputs
        self._guidance = guidance
        self._limit = limit

    async def execution(self, notebook: Notebook, cell: Cell, notice: str = "") -> ToolResult:
        """The answer to `execute`: output, value, error and the addresses of all."""
        content, result = await self.executed(notebook, cell, notice)
        return ToolResult(content=content, structured_content=dict(result), is_error=cell.state.failed)

    async def executed(
        self, notebook: Notebook, cell: Cell, notice: str = ""
    ) -> tuple[list[ContentBlock], ExecutionResult]:
        """The content and the structured content of that answer."""
        seen = await self._see(notebook, cell)
        error = next((output for output in reversed(cell.outputs) if output.type is OutputType.ERROR), None)
        failed = cell.state.failed
        name, message = _failure(error, seen) if failed else (None, None)
        result: ExecutionResult = {
            "success": cell.state is CellState.SUCCESS,
            "state": cell.state.value,
            "stdout": seen.streams["stdout"],
            "stderr": seen.streams["stderr"],
            "return_value": _value(cell, seen),
            "error_type": name,
            "error_message": message,
            "notebook": notebook.title,
            "cell_id": cell.id,
            "cell_number": cell.number,
            "seconds": _seconds(cell),
            "outputs": [
                dict(info) for info in seen.outputs if "image" in info or info["type"] in ("html", "dataframe")
            ],
        }
        if notice:
            result["notice"] = notice
        return self._content(notebook, cell, seen, notice), result

    async def cell(self, notebook: Notebook, cell: Cell, notice: str = "", *, code: bool = False) -> ToolResult:
        """The answer of a tool that adds, runs or shows a cell; `code` shows its source too."""
        seen = await self._see(notebook, cell)
        info = cast(ShownCell, {**describe(notebook, cell), "outputs": seen.outputs})
        if code:
            info["code"] = _clip(
                model_text.escape_control_characters(cell.source), self._limit, cell_uri(notebook, cell)
            )
            seen.lines.insert(0, f"{info['code']}\n---" if cell.outputs else info["code"])
        if notice:
            info["notice"] = notice
        content = self._content(notebook, cell, seen, notice)
        return ToolResult(content=content, structured_content=dict(info), is_error=cell.state.failed)

    async def outputs(self, notebook: Notebook, cell: Cell) -> list[ContentBlock]:
        """One item for each output. A picture replaces its line; a smaller copy is put before it."""
        seen = await self._see(notebook, cell)
        blocks: list[ContentBlock] = []
        for number, line in enumerate(seen.lines):
            picture = seen.placed.get(number)
            if picture is not None:
                blocks.append(picture)
            if picture is None or number in seen.smaller:
                blocks.append(TextContent(type="text", text=line))
        return blocks

    async def several(self, notebook: Notebook, cells: list[Cell], notice: str) -> ToolResult:
        """The answer of a tool that ran several cells. Their outputs share the limit."""
        lines, pictures = [f"Note: {notice}"] if notice else [], []
        for cell in cells:
            seen = await self._see(notebook, cell, max(300, self._limit // len(cells)))
            lines += [*seen.lines, self._footer(notebook, cell)]
            pictures += seen.pictures
        info = cast(ShownCell, {**describe(notebook, cells[-1]), "outputs": seen.outputs})
        info["ran"] = [cell.number for cell in cells]
        if notice:
            info["notice"] = notice
        content: list[ContentBlock] = [TextContent(type="text", text="\n".join(lines)), *pictures[:_MAX_PICTURES]]
        return ToolResult(content=content, structured_content=dict(info), is_error=cells[-1].state.failed)

    def _content(self, notebook: Notebook, cell: Cell, seen: _Seen, notice: str) -> list[ContentBlock]:
        lines = [f"Note: {notice}", *seen.lines] if notice else seen.lines
        text = "\n".join([*lines, self._footer(notebook, cell)])
        return [TextContent(type="text", text=text), *seen.pictures]

    def _footer(self, notebook: Notebook, cell: Cell) -> str:
        """With a hint what to do if the cell still runs."""
        if cell.state is not CellState.RUNNING:
            return footer(notebook, cell)
        session = notebook.runtime in RUNTIMES.values()
        return f"{footer(notebook, cell)} {self._guidance.goes_on(cell_uri(notebook, cell), session=session)}"

    async def _see(self, notebook: Notebook, cell: Cell, limit: int = 0) -> _Seen:
        """The line, the entry and the picture of each output."""
        seen = _Seen()
        limit = limit or self._limit
        share = max(500, limit // max(1, len(cell.outputs)))
        pictures = 0
        for index, output in enumerate(cell.outputs):
            uri = output_uri(notebook, cell, index)
            text = _clip(await self._text(output), share, uri)
            if seen.chars + len(text) > limit + share:
                seen.lines.append(f"[output {index}: {output.type}, left out for length; whole: {uri}]")
                seen.outputs.append({"type": output.type.value, "uri": uri})
                continue
            seen.chars += len(text)
            info: OutputInfo = {"type": output.type.value, "uri": uri}
            if output.type is OutputType.STREAM:
                seen.streams[output.name] += text
                seen.lines.append(text.rstrip("\n") if output.name == "stdout" else f"[stderr] {text.rstrip()}")
            elif (found := find_image(output)) is not None:
                info["image"] = _reference(output, image_uri(notebook, cell, pictures))
                seen.lines.append(_image_line(pictures, info["image"]))
                await self._look(output, found[0], seen)
                pictures += 1
                if output.result and text and found[2] != "preview":
                    seen.lines.append(text)
            elif output.type is OutputType.DATAFRAME and "table" in output.about:
                seen.lines += [text, f"[other rows: {uri}/rows/0]"] if "\n… " in text else [text]
            else:
                seen.lines.append(text or f"[{', '.join(output.bundle)}: {uri}]")
            if output.type is not OutputType.STREAM or "image" not in info:
                info["text"] = text
            seen.outputs.append(info)
        return seen

    async def _text(self, output: Output) -> str:
        """The output as text."""
        mime = model_text.best_mime_type(output)
        text = await self._outputs.read_text(output.bundle.get(mime, ""))
        if len(text) > _THREAD_CHARS:
            return await anyio.to_thread.run_sync(model_text.final_text, model_text.as_text(mime, text))
        return model_text.final_text(model_text.as_text(mime, text))

    async def _look(self, output: Output, mime: str, seen: _Seen) -> None:
        shown = PREVIEW if PREVIEW in output.bundle else mime
        data = output.bundle[shown]
        if len(seen.pictures) >= _MAX_PICTURES or shown == "image/svg+xml" or _size(data) > _MAX_PICTURE_BYTES:
            return
        if output.about.get("width") is None:
            return  # not a valid picture: some clients would refuse the whole answer
        whole = await self._outputs.read_bytes(data)
        kind, place = "image/png" if shown == PREVIEW else mime, len(seen.lines) - 1
        image = ImageContent(type="image", data=base64.b64encode(whole).decode("ascii"), mime_type=kind)
        seen.pictures.append(image)
        seen.placed[place] = image
        if shown == PREVIEW:
            seen.smaller.add(place)


@dataclass
class _Seen:
    lines: list[str] = field(default_factory=list)
    outputs: list[OutputInfo] = field(default_factory=list)
    pictures: list[ImageContent] = field(default_factory=list)
    placed: dict[int, ImageContent] = field(default_factory=dict)  # the same, by the number of their line
    smaller: set[int] = field(default_factory=set)  # lines whose picture is shown as a smaller copy
    streams: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    chars: int = 0


def describe(notebook: Notebook, cell: Cell) -> CellInfo:
    info: CellInfo = {
        "notebook": notebook.title,
        "cell_id": cell.id,
        "cell_number": cell.number,
        "cell_type": cell.kind.value,
        "state": cell.state.value,
        "version": cell.version,
        "execution_count": cell.run.count if cell.run else None,
        "seconds": _seconds(cell),
    }
    if cell.stale:
        info["stale"] = True
    return info


def footer(notebook: Notebook, cell: Cell) -> str:
    """The last line of an answer: the cell and its state."""
    seconds = _seconds(cell)
    took = f", {seconds:g} s" if seconds is not None else ""
    return f"[cell {cell.number} ({cell.id}) of {notebook.title}: {cell.state}{_stale(cell)}{took}]"


def row(cell: Cell) -> str:
    """A cell as one line of a list."""
    first = headline(cell)
    shown = first if len(first) <= 60 else first[:59] + "…"
    kind = "" if cell.kind is CellKind.CODE else f" {cell.kind}"
    outputs = ", ".join(dict.fromkeys(output.type.value for output in cell.outputs))
    line = f"{cell.number:>3} {cell.id} {cell.state}{_stale(cell)}{kind} | {shown}"
    return line + (f" -> {outputs}" if outputs else "")


def _stale(cell: Cell) -> str:
    return " (stale)" if cell.stale else ""


def cell_uri(notebook: Notebook, cell: Cell) -> str:
    return f"notebook://{quote(notebook.title, safe='')}/cell/{cell.id}"


def output_uri(notebook: Notebook, cell: Cell, index: int) -> str:
    return f"{cell_uri(notebook, cell)}/output/{index}"


def image_uri(notebook: Notebook, cell: Cell, index: int) -> str:
    return f"{cell_uri(notebook, cell)}/image/{index}"


def ipynb_uri(notebook: Notebook) -> str:
    return f"notebook://{quote(notebook.title, safe='')}/ipynb"


def file_uri(notebook: Notebook, path: str) -> str:
    return f"notebook://{quote(notebook.title, safe='')}/files/{quote(path)}"


def size(length: int) -> str:
    return f"{length / 2**20:.1f} MiB" if length >= 2**20 / 10 else f"{length / 2**10:.1f} KiB"


def moved(moved: RollbackResult) -> str:
    """Where a rollback or a restore went to, and what it did not restore."""
    if moved.run is None:
        where = "as the kernel began"
    else:
        where = f"as after cell {moved.cell.number}" if moved.cell is not None else "as after a cell deleted since"
    if moved.already:
        return f"The namespace is {where} already; nothing was changed."
    said = f"The namespace is {where}. Files, connections and child processes are not rolled back."
    if moved.lost:
        said += f" Not restored: {', '.join(moved.lost)}."
    return said + stale(moved)


def stale(moved: RollbackResult) -> str:
    cells = ", ".join(map(str, moved.stale))
    return f" Stale now, outputs kept: cell{'s' * (len(moved.stale) > 1)} {cells}." if cells else ""


def _failure(error: Output | None, seen: _Seen) -> tuple[str | None, str | None]:
    """The type and the message of the error. A wrong use of a magic is only on stderr."""
    if error is not None:
        return error.name, model_text.final_text(str(error.about.get("message", "")))
    name, _, message = seen.streams["stderr"].rstrip().rpartition("\n")[2].partition(": ")
    return (name, message) if message else (None, None)


def _value(cell: Cell, seen: _Seen) -> Any:
    if cell.run is not None and cell.run.value:
        return cell.run.value[0]
    for output, info in zip(cell.outputs, seen.outputs, strict=True):
        if output.result:
            return info.get("text")
    return None


def _reference(output: Output, uri: str) -> Any:
    mime, data, source = find_image(output) or ("", "", None)
    return {
        "uri": uri,
        "format": FORMATS[mime],
        "width": output.about.get("width"),
        "height": output.about.get("height"),
        "size": _size(data),
        "source": source,
    }


def _image_line(index: int, image: Any) -> str:
    sides = f" {image['width']}x{image['height']}" if image["width"] else ""
    return f"[image {index}: {image['format']}{sides}, {image['size']:,} bytes, {image['uri']}]"


def _size(data: str | bytes | Blob) -> int:
    return data.size if isinstance(data, Blob) else len(data)


def _seconds(cell: Cell) -> float | None:
    return round(cell.run.seconds, 3) if cell.run and cell.run.seconds is not None else None


def _clip(text: str, limit: int, uri: str) -> str:
    """The start and the end of a long text, with the address of the whole."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out; whole: {uri} ...]\n{text[-half:]}"
