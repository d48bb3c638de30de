"""What a client is shown of the tools stays small, and every tool says what it is, does and answers."""

from __future__ import annotations

import pytest
from bench.surface import read_chars, wire_chars
from mcp_types import Tool

from tests.support.servers import SharedServer

LONGEST_DESCRIPTION = 400
HINTS = ("read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint")
WITHOUT_STRUCTURE = {"get_cell_image"}  # a picture is its whole answer


@pytest.fixture(scope="module")
async def tools(shared_server: SharedServer) -> list[Tool]:
    return await (await shared_server.client()).list_tools()


async def test_names_descriptions_and_inputs_take_at_most_12_000_characters(tools: list[Tool]) -> None:
    assert 0 < read_chars(tools) <= 12_000


async def test_the_whole_list_takes_at_most_24_000_characters(tools: list[Tool]) -> None:
    assert tools and wire_chars(tools) <= 24_000


async def test_each_tool_has_a_title_a_short_description_and_four_hints(tools: list[Tool]) -> None:
    lacking = [
        each.name
        for each in tools
        if not each.title
        or not 0 < len(each.description or "") <= LONGEST_DESCRIPTION
        or each.annotations is None
        or any(getattr(each.annotations, hint) is None for hint in HINTS)
    ]
    assert lacking == []


async def test_each_tool_except_the_image_declares_its_answer(tools: list[Tool]) -> None:
    assert {each.name for each in tools if each.output_schema is None} == WITHOUT_STRUCTURE
