"""The prompt `jupyter_cite`: cells of a notebook, put before what a person asks."""

from __future__ import annotations

import re

from quire.core.errors import InvalidRequest, NotFound
from quire.core.notebooks.access import Access
from quire.core.runs.model_text import escape_control_characters
from quire.frontends.mcp.tool_context import ToolContext
from quire.frontends.mcp.tool_registry import ToolRegistry
from quire.frontends.mcp.toolsets import jupyter_texts
from quire.frontends.mcp.toolsets.jupyter_cells import Books

_PART = re.compile(r"(\d{1,9})(?:\s*(-)\s*(\d{1,9})?)?")  # 4, 0-2, or 3- for all from 3 on
END = "=====End of Cited Cells====="


def register(registry: ToolRegistry, books: Books) -> None:
    async def jupyter_cite(ctx: ToolContext, prompt: str, cell_indices: str, notebook_name: str = "") -> str:
        """Cite cells of a notebook, as in 0-2,4, before a prompt."""
        book = await books.named(ctx, notebook_name or None, Access.READ)
        cells = await ctx.app.cells.list_cells(book)
        cited = numbers(cell_indices, len(cells))
        books.shown(ctx, book, *(cells[number] for number in cited))
        lines = [f"USER Cite cells {cited} from notebook {book.title}."]
        for number in cited:
            lines.append(jupyter_texts.head(cells[number]))
            lines.append(jupyter_texts.clipped(escape_control_characters(cells[number].source), 2 * ctx.result_chars))
        return "\n".join([*lines, END, prompt])

    registry.add_prompt(jupyter_cite, "Cite cells")


def numbers(text: str, total: int) -> list[int]:
    """The cells that a text like `0-2,4` names, in order. Raises InvalidRequest or NotFound."""
    found: set[int] = set()
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise InvalidRequest(f"{part!r} names no cells. Write cell_indices as in 0-2,4; 3- is all cells from 3 on.")
        first = int(match[1])
        last = int(match[3]) if match[3] else total - 1 if match[2] else first
        if not first <= last < total:
            raise NotFound(f"Cell index {part} is out of range. Notebook has {jupyter_texts.number_of(total, 'cell')}.")
        found |= set(range(first, last + 1))
    if not found:
        raise InvalidRequest("Which cells? Write cell_indices as in 0-2,4.")
    return sorted(found)
