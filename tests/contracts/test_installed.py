"""One suite for every Installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quire.core.capabilities.model import Approve, Backend, Capability, Offered, Tool
from quire.core.model import LOCAL, Principal
from quire.core.ports.capabilities import Installed
from quire.stores.sql import SqlStore

OTHER = Principal("another")


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Installed]:
    store = SqlStore(tmp_path)
    yield store.capabilities
    await store.close()


def a_capability(name: str = "gmail", owner: Principal = LOCAL, at: float = 1.0, **more: Any) -> Capability:
    given: dict[str, Any] = {"backend": Backend(command=("serve", "--all")), "offered": Offered(), **more}
    return Capability(owner=owner, name=name, installed_at=at, **given)


FULL = a_capability(
    backend=Backend(
        url="https://mail.test/mcp",
        headers={"Authorization": "Bearer env:TOKEN", "X-Ünï": "‮x"},
        env={"A": ""},
        folder="/somewhere",
        config="/a/file.json",
        entry="mail",
    ),
    offered=Offered(
        tools=(
            Tool(name="search-mail", description="Finds.\nAll.", input={"type": "object", "properties": {"q": {}}}),
            Tool(name="send", output={"type": "object"}, hints={"destructiveHint": True, "title": None}),
        ),
        about="Mail, with 𝄞.",
        server="mail 1.0",
        resources=True,
        prompts=True,
    ),
    approve={"send": Approve.ASK_OR_DENY, "*": Approve.ASK},
)


async def test_what_is_kept_comes_back_the_same(kept: Installed) -> None:
    await kept.keep(FULL)
    assert await kept.of(LOCAL) == [FULL]
    [found] = await kept.of(LOCAL)
    assert type(found.approve["send"]) is Approve and type(found.backend.command) is tuple


async def test_nothing_is_kept_at_first(kept: Installed) -> None:
    assert await kept.of(LOCAL) == []


async def test_they_are_listed_oldest_first(kept: Installed) -> None:
    for name, at in (("c", 3.0), ("a", 2.0), ("b", 1.0), ("d", 2.0)):
        await kept.keep(a_capability(name, at=at))
    assert [each.name for each in await kept.of(LOCAL)] == ["b", "a", "d", "c"]


async def test_one_of_the_same_name_is_replaced(kept: Installed) -> None:
    await kept.keep(a_capability("gmail"))
    changed = replace(FULL, offered=Offered(tools=(Tool(name="new"),)))
    await kept.keep(changed)
    assert await kept.of(LOCAL) == [changed]


async def test_what_it_offers_is_renewed_only_while_it_is_the_one_that_was_installed(kept: Installed) -> None:
    old, other = a_capability(at=1.0), Offered(about="Other tools now.")
    await kept.renew(replace(old, offered=other))
    assert await kept.of(LOCAL) == []  # uninstalled is uninstalled
    await kept.keep(old)
    await kept.renew(replace(old, offered=other))
    assert [each.offered for each in await kept.of(LOCAL)] == [other]
    new = a_capability(at=2.0, backend=Backend(command=("another",)))
    await kept.keep(new)
    await kept.renew(replace(old, offered=other))
    assert await kept.of(LOCAL) == [new]


async def test_each_owner_has_their_own(kept: Installed) -> None:
    await kept.keep(a_capability("gmail"))
    await kept.keep(a_capability("gmail", OTHER, at=5.0))
    assert [(each.owner, each.installed_at) for each in await kept.of(LOCAL)] == [(LOCAL, 1.0)]
    await kept.drop(LOCAL, "gmail")
    assert await kept.of(LOCAL) == []
    assert [each.owner for each in await kept.of(OTHER)] == [OTHER]


async def test_dropping_what_is_not_there_is_nothing(kept: Installed) -> None:
    await kept.keep(a_capability("gmail"))
    await kept.drop(LOCAL, "drive")
    assert len(await kept.of(LOCAL)) == 1


async def test_what_is_kept_is_on_disk_when_it_returns_and_others_are_told(tmp_path: Path) -> None:
    one, two = SqlStore(tmp_path), SqlStore(tmp_path)
    try:
        before = two.capabilities.stamp()
        assert two.capabilities.stamp() == before
        await one.capabilities.keep(FULL)
        after = two.capabilities.stamp()
        assert after != before and await two.capabilities.of(LOCAL) == [FULL]
        await two.capabilities.drop(LOCAL, "gmail")
        assert one.capabilities.stamp() != after and await one.capabilities.of(LOCAL) == []
    finally:
        await one.close()
        await two.close()
