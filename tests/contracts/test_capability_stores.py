"""One suite for every CapabilityStore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quire.core.capabilities.model import Approve, Backend, Capability, Offered, Tool
from quire.core.model import LOCAL, Principal
from quire.core.ports.capabilities import CapabilityStore
from quire.stores.sql import SqlStore

OTHER = Principal("another")


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[CapabilityStore]:
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


async def test_saved_capability_is_read_back_unchanged(kept: CapabilityStore) -> None:
    await kept.save(FULL)
    assert await kept.list_for_owner(LOCAL) == [FULL]
    [found] = await kept.list_for_owner(LOCAL)
    assert type(found.approve["send"]) is Approve and type(found.backend.command) is tuple


async def test_new_store_has_no_capabilities(kept: CapabilityStore) -> None:
    assert await kept.list_for_owner(LOCAL) == []


async def test_capabilities_are_listed_oldest_first(kept: CapabilityStore) -> None:
    for name, at in (("c", 3.0), ("a", 2.0), ("b", 1.0), ("d", 2.0)):
        await kept.save(a_capability(name, at=at))
    assert [each.name for each in await kept.list_for_owner(LOCAL)] == ["b", "a", "d", "c"]


async def test_capability_of_the_same_name_is_replaced(kept: CapabilityStore) -> None:
    await kept.save(a_capability("gmail"))
    changed = replace(FULL, offered=Offered(tools=(Tool(name="new"),)))
    await kept.save(changed)
    assert await kept.list_for_owner(LOCAL) == [changed]


async def test_offer_of_a_replaced_capability_is_not_saved(kept: CapabilityStore) -> None:
    old, other = a_capability(at=1.0), Offered(about="Other tools now.")
    await kept.update_offered(replace(old, offered=other))
    assert await kept.list_for_owner(LOCAL) == []  # uninstalled is uninstalled
    await kept.save(old)
    await kept.update_offered(replace(old, offered=other))
    assert [each.offered for each in await kept.list_for_owner(LOCAL)] == [other]
    new = a_capability(at=2.0, backend=Backend(command=("another",)))
    await kept.save(new)
    await kept.update_offered(replace(old, offered=other))
    assert await kept.list_for_owner(LOCAL) == [new]


async def test_each_owner_has_own_capabilities(kept: CapabilityStore) -> None:
    await kept.save(a_capability("gmail"))
    await kept.save(a_capability("gmail", OTHER, at=5.0))
    assert [(each.owner, each.installed_at) for each in await kept.list_for_owner(LOCAL)] == [(LOCAL, 1.0)]
    await kept.delete(LOCAL, "gmail")
    assert await kept.list_for_owner(LOCAL) == []
    assert [each.owner for each in await kept.list_for_owner(OTHER)] == [OTHER]


async def test_deleting_a_missing_capability_does_nothing(kept: CapabilityStore) -> None:
    await kept.save(a_capability("gmail"))
    await kept.delete(LOCAL, "drive")
    assert len(await kept.list_for_owner(LOCAL)) == 1


async def test_saved_capability_is_on_disk_and_other_servers_notice(tmp_path: Path) -> None:
    one, two = SqlStore(tmp_path), SqlStore(tmp_path)
    try:
        before = two.capabilities.version()
        assert two.capabilities.version() == before
        await one.capabilities.save(FULL)
        after = two.capabilities.version()
        assert after != before and await two.capabilities.list_for_owner(LOCAL) == [FULL]
        await two.capabilities.delete(LOCAL, "gmail")
        assert one.capabilities.version() != after and await one.capabilities.list_for_owner(LOCAL) == []
    finally:
        await one.close()
        await two.close()
