"""Which calls a person is asked about."""

from __future__ import annotations

import anyio
import pytest

from quire.core.capabilities.approvals import ApprovalRules, Approvals
from quire.core.capabilities.model import Approve
from quire.core.errors import NotFound

NEVER, ASK, ALWAYS = Approve.ALLOW, Approve.ASK, Approve.ASK_OR_DENY


def approvals(rules: dict[str, Approve] | None = None, *, unasked: bool = False, timeout: float = 30) -> Approvals:
    return Approvals(ApprovalRules(rules=rules or {}, unasked=unasked, timeout=timeout))


@pytest.mark.parametrize(
    ("rules", "declared", "default", "needed"),
    [
        ({}, {}, NEVER, NEVER),
        ({}, {}, ASK, ASK),
        ({}, {"send": ALWAYS}, NEVER, ALWAYS),
        ({}, {"send": NEVER}, ASK, ASK),  # what is installed cannot loosen what the tool says of itself
        ({}, {"*": ASK}, NEVER, ASK),
        ({}, {"*": ALWAYS, "send": NEVER}, NEVER, NEVER),
        ({}, {"other": ALWAYS}, NEVER, NEVER),
        ({"mail.send": NEVER}, {"send": ALWAYS}, ASK, NEVER),  # the operator is over all else
        ({"mail.*": NEVER}, {}, ASK, NEVER),
        ({"*": ALWAYS}, {}, NEVER, ALWAYS),
        ({"*": ALWAYS, "mail.*": ASK, "mail.send": NEVER}, {}, NEVER, NEVER),
        ({"*": ALWAYS, "mail.*": ASK}, {}, NEVER, ASK),
        ({"other.send": ALWAYS, "mail.other": ALWAYS}, {}, NEVER, NEVER),
    ],
)
def test_the_nearest_rule_of_the_operator_else_the_strictest_said(
    rules: dict[str, Approve], declared: dict[str, Approve], default: Approve, needed: Approve
) -> None:
    assert approvals(rules).needed("mail", ["send"], declared, default) is needed


@pytest.mark.parametrize(
    ("needed", "unasked", "allowed"),
    [(NEVER, False, True), (ASK, False, False), (ASK, True, True), (ALWAYS, True, False), (ALWAYS, False, False)],
)
async def test_client_without_elicitation(needed: Approve, unasked: bool, allowed: bool) -> None:
    why = await approvals(unasked=unasked).obtain(needed, None, "main", "mail.send", {})
    assert (why == "") is allowed
    assert allowed or ("mail.send" in why and "quire.toml" in why)


async def test_deny_denies_without_asking() -> None:
    asking = approvals(unasked=True)
    with asking.watching():
        why = await asking.obtain(Approve.DENY, None, "main", "mail.send", {})
    assert "mail.send" in why and asking.pending() == []
    assert asking.needed("mail", ["send"], {"send": Approve.DENY}, ALWAYS) is Approve.DENY


def test_words_of_0_1_are_understood() -> None:
    assert [Approve(word) for word in ("never", "ask", "always")] == [NEVER, ASK, ALWAYS]


async def test_who_watches_is_asked_and_the_first_word_counts() -> None:
    asking = approvals()
    said: list[str] = []

    async def ask() -> None:
        said.append(await asking.obtain(ALWAYS, None, "main", "mail.send", {"to": "a@b"}))

    with asking.watching():
        for first, second in ((True, False), (False, True)):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                with anyio.fail_after(10):
                    while not asking.pending():
                        await anyio.sleep(0)
                [pending] = asking.pending()
                assert (pending.notebook, pending.what, pending.arguments, pending.cell) == (
                    "main",
                    "mail.send",
                    'to="a@b"',
                    None,
                )
                asking.answer(pending.id, first)
                asking.answer(pending.id, second)
    assert said[0] == "" and "A person said no to mail.send" in said[1]
    assert asking.pending() == []
    with pytest.raises(NotFound, match="closed"):
        asking.answer(pending.id, True)


async def test_without_an_answer_in_time_it_is_denied() -> None:
    asking = approvals(timeout=0.01)
    with asking.watching():
        why = await asking.obtain(ASK, None, "main", "mail.send", {})
    assert "Nobody approved mail.send within 0.01 s" in why and asking.pending() == []


async def test_who_gives_up_leaves_no_question() -> None:
    asking = approvals()
    with asking.watching():
        with anyio.move_on_after(0.01):
            await asking.obtain(ASK, None, "main", "mail.send", {})
        assert asking.pending() == []
