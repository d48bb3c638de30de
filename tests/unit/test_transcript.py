"""Transcript: from events to outputs."""

from __future__ import annotations

import random
from collections.abc import Iterable

from quire.core.model import Output, OutputType
from quire.core.runs.transcript import Transcript
from quire.wire.messages import Cleared, Displayed, Finished, Printed, Raised


def folded(*events: object, cap: int = 1_000_000) -> Transcript:
    transcript = Transcript(cap)
    for event in events:
        transcript.add(event)  # type: ignore[arg-type]
    return transcript


def out(data: bytes | str, stream: str = "stdout") -> Printed:
    return Printed(stream=stream, data=data.encode() if isinstance(data, str) else data)


def test_adjacent_prints_are_one_output_in_order() -> None:
    shown = Displayed(kind="html", bundle={"text/html": "<b>"})
    outputs = folded(out("a"), out("b\n"), out("c", "stderr"), out("d"), shown, out("e")).outputs()
    assert [(o.type, o.name, o.bundle.get("text/plain")) for o in outputs] == [
        (OutputType.STREAM, "stdout", "ab\n"),
        (OutputType.STREAM, "stderr", "c"),
        (OutputType.STREAM, "stdout", "d"),
        (OutputType.HTML, "", None),
        (OutputType.STREAM, "stdout", "e"),
    ]


def test_character_split_between_prints_is_whole() -> None:
    data = "😀é".encode()
    for cut in range(len(data)):
        assert folded(out(data[:cut]), out(data[cut:])).outputs()[0].bundle == {"text/plain": "😀é"}


def test_invalid_utf8_is_replaced_and_bytes_are_kept() -> None:
    output = folded(out(b"ok \xff\xfe")).outputs()[0]
    assert output.bundle == {"text/plain": "ok \ufffd\ufffd", "application/octet-stream": b"ok \xff\xfe"}


def test_printed_replacement_character_is_valid_text() -> None:
    assert folded(out("\ufffd")).outputs()[0].bundle == {"text/plain": "\ufffd"}


def test_above_the_limit_beginning_and_end_are_kept() -> None:
    transcript = Transcript(10_000)
    for number in range(10_000):
        transcript.add(out(f"line {number}\n"))
    text = "".join(str(output.bundle["text/plain"]) for output in transcript.outputs())
    assert text.startswith("line 0\n") and text.endswith("line 9999\n")
    assert "bytes of output dropped" in text and len(text) < 11_000
    total = sum(len(f"line {number}\n") for number in range(10_000))
    dropped = int(text.split("[... ")[1].split(" bytes")[0].replace(",", ""))
    note = text[text.index("\n[... ") : text.index("...]\n") + 5]
    assert abs(len(text) - len(note) + dropped - total) <= 64  # the cost of an entry counts too


def test_many_displays_are_limited_and_the_error_is_kept() -> None:
    shown = Displayed(kind="execute_result", bundle={"text/plain": "x" * 100})
    transcript = Transcript(10_000)
    for _ in range(100_000):
        transcript.add(shown)
    transcript.add(Raised(name="E", message="m", traceback="t"))
    outputs = transcript.outputs()
    assert len(outputs) < 100 and outputs[-1].type is OutputType.ERROR


def test_last_line_is_what_was_printed_last() -> None:
    assert folded(out("one\ntwo\n")).last_line() == "two"
    assert folded(out("10%\r20%\r")).last_line() == "20%"
    assert folded().last_line() == ""


def test_lone_surrogates_never_reach_an_output() -> None:
    hostile = "\ud800"
    outputs = folded(
        Displayed(kind="html", bundle={"text/html": hostile}), Raised(name=hostile, message=hostile, traceback=hostile)
    ).outputs()
    for output in outputs:
        for text in (*output.bundle.values(), output.name):
            assert isinstance(text, str) and text.encode("utf-8") is not None


def test_finished_is_kept_and_is_not_an_output() -> None:
    transcript = folded(Finished(run="r", outcome="success", value=[1]))
    assert transcript.finished is not None and transcript.outputs() == ()


def test_parts_of_new_output_together_are_all_outputs() -> None:
    chance = random.Random(7)
    for cap in (1_000_000, 100_000):
        transcript, kept = Transcript(cap), {}
        for number in range(3_000):
            transcript.add(an_event(chance, number))
            if chance.random() < 0.02:
                take(transcript, kept)
        while transcript.has_new:
            take(transcript, kept)
        together = [kept[place] for place in sorted(kept)]
        assert in_one_line(together) == in_one_line(transcript.outputs())
        assert len(together) > len(transcript.outputs())  # long streams come in pieces


def test_new_output_is_returned_once_unless_put_back() -> None:
    transcript = folded(out("a"), Displayed(kind="html", bundle={"text/html": "<b>"}))
    news, dropped = transcript.take_new()
    assert [output.type for output in news.values()] == [OutputType.STREAM, OutputType.HTML] and not dropped
    assert transcript.take_new()[0] == {} and not transcript.has_new
    transcript.put_back(news, range(0))
    assert transcript.has_new and transcript.take_new()[0] == news
    transcript.add(out("b"))
    assert [output.bundle for output in transcript.take_new()[0].values()] == [{"text/plain": "b"}]


def test_new_output_is_limited_per_call() -> None:
    transcript = folded(*[out("x" * 50_000) for _ in range(60)], cap=10_000_000)
    first = sum(len(str(output.bundle["text/plain"])) for output in transcript.take_new()[0].values())
    assert first < 1_200_000 and transcript.has_new
    while transcript.has_new:
        transcript.take_new()
    transcript.add(out("y"))
    assert sum(len(str(output.bundle["text/plain"])) for output in transcript.take_new()[0].values()) < 100_000


def an_event(chance: random.Random, number: int) -> Printed | Displayed:
    if chance.random() < 0.1:
        return Displayed(kind="html", bundle={"text/html": f"<b>{number}" * chance.randrange(20)})
    text = chance.choice(["é", "line\n", "😀", "\n"]) * chance.randrange(400)
    return out(f"{number} {text}", chance.choice(["stdout", "stdout", "stderr"]))


def take(transcript: Transcript, kept: dict[int, Output]) -> None:
    news, dropped = transcript.take_new()
    kept.update(news)
    for place in dropped:
        kept.pop(place, None)


def in_one_line(outputs: Iterable[Output]) -> list[tuple[str, str]]:
    """Each stream's text and each display, with adjacent pieces of one stream put together."""
    said = [(output.name, str(output.bundle.get("text/plain", output.bundle.get("text/html")))) for output in outputs]
    line: list[tuple[str, str]] = []
    for name, text in said:
        if name and line and line[-1][0] == name:
            line[-1] = (name, line[-1][1] + text)
        else:
            line.append((name, text))
    return line


def shown(text: str, id_: str = "", *, update: bool = False, result: bool = False) -> Displayed:
    return Displayed(kind="execute_result", bundle={"text/plain": text}, display_id=id_, update=update, result=result)


def plain(transcript: Transcript) -> list[object]:
    return [output.bundle["text/plain"] for output in transcript.outputs()]


def test_update_replaces_all_displays_with_its_id() -> None:
    transcript = folded(
        shown("a", "x"), out("between"), shown("b", "x"), shown("c", "y"), shown("d"), shown("new", "x", update=True)
    )
    assert plain(transcript) == ["new", "between", "new", "c", "d"]
    assert [output.display_id for output in transcript.outputs()] == ["x", "", "x", "y", ""]


def test_updated_result_is_still_a_result() -> None:
    first = folded(shown("a", "x", result=True), shown("b", "x", update=True)).outputs()[0]
    assert first.result and first.bundle == {"text/plain": "b"}


def test_update_of_unknown_id_is_for_other_cells() -> None:
    transcript = folded(shown("a"), shown("b", "x", update=True), shown("c", "x", update=True))
    assert plain(transcript) == ["a"]
    assert {id_: event.bundle for id_, event in transcript.updates.items()} == {"x": {"text/plain": "c"}}


def test_update_without_id_changes_nothing() -> None:
    transcript = folded(shown("a"), shown("b"), shown("c", update=True))
    assert plain(transcript) == ["a", "b"] and transcript.updates == {}


def test_many_updates_are_limited() -> None:
    transcript = Transcript(100_000)
    for number in range(1_000):
        transcript.add(shown(f"{number}", f"id {number}"))
    for number in range(3_000):
        transcript.add(shown("x" * 3_000, f"id {number}", update=True))
    assert len(transcript.updates) <= 256
    kept = sum(len(str(output.bundle["text/plain"])) for output in transcript.outputs())
    assert kept < 300_000
    single = folded(shown("a", "x"), cap=10_000)
    for number in range(20_000):
        single.add(shown(f"{number}", "x", update=True))
    assert plain(single) == ["19999"]
    assert single.outputs() == single.outputs()


def test_update_finds_displays_after_output_was_dropped() -> None:
    transcript = Transcript(10_000)
    transcript.add(shown("first", "x"))
    for number in range(10_000):
        transcript.add(out(f"line {number}\n"))
    transcript.add(shown("last", "y"))
    transcript.add(shown("FIRST", "x", update=True))
    transcript.add(shown("LAST", "y", update=True))
    assert plain(transcript)[0] == "FIRST" and plain(transcript)[-1] == "LAST"


def test_clear_removes_outputs_now_or_at_the_next_output() -> None:
    events = [out("a"), shown("b", "x"), Raised(name="E", message="m", traceback="t")]
    assert folded(*events, Cleared(wait=False)).outputs() == ()
    assert len(folded(*events, Cleared(wait=True)).outputs()) == 3
    assert plain(folded(*events, Cleared(wait=True), out("c"))) == ["c"]
    assert plain(folded(*events, Cleared(wait=True), shown("c"))) == ["c"]
    assert plain(folded(*events, Cleared(wait=True), Finished(run="r", outcome="success")))[0] == "a"
    both = folded(*events, Cleared(wait=True), Cleared(wait=False), out("d"), out("e"))
    assert plain(both) == ["de"]


def test_update_after_clear_restores_nothing() -> None:
    transcript = folded(shown("a", "x"), Cleared(wait=False), shown("b", "x", update=True))
    assert transcript.outputs() == ()


def test_waiting_clear_ignores_updates_of_other_cells() -> None:
    transcript = folded(out("progress"), Cleared(wait=True), shown("b", "elsewhere", update=True))
    assert plain(transcript) in (["progress"], [])


def test_clear_resets_size_and_dropped_count() -> None:
    transcript = Transcript(10_000)
    for _ in range(50):
        transcript.add(out("x" * 5_000))
        transcript.add(Cleared(wait=False))
    transcript.add(out("y" * 4_000))
    assert plain(transcript) == ["y" * 4_000]


def test_new_output_with_updates_and_clears_is_complete() -> None:
    chance = random.Random(11)
    for cap in (1_000_000, 40_000):
        transcript, kept = Transcript(cap), {}
        for number in range(4_000):
            transcript.add(any_event(chance, number))
            if chance.random() < 0.03:
                if chance.random() < 0.3:  # the disk was full
                    transcript.put_back(*transcript.take_new())
                else:
                    take(transcript, kept)
        while transcript.has_new:
            take(transcript, kept)
        take(transcript, kept)
        assert in_one_line(kept[place] for place in sorted(kept)) == in_one_line(transcript.outputs())


def test_clear_without_output_is_reported() -> None:
    transcript, kept = folded(out("old"), shown("old")), {}
    take(transcript, kept)
    assert len(kept) == 2
    transcript.add(Cleared(wait=False))
    take(transcript, kept)
    assert kept == {}


def test_clear_that_was_put_back_is_reported_again() -> None:
    transcript, kept = folded(out("old")), {}
    take(transcript, kept)
    transcript.add(Cleared(wait=False))
    transcript.add(out("new"))
    transcript.put_back(*transcript.take_new())
    transcript.add(out("er"))
    take(transcript, kept)
    assert in_one_line(kept[place] for place in sorted(kept)) == [("stdout", "newer")]


def any_event(chance: random.Random, number: int) -> Printed | Displayed | Cleared:
    kind = chance.random()
    if kind < 0.002:
        return Cleared(wait=chance.random() < 0.5)
    if kind < 0.2:
        return shown(f"{number} " * chance.randrange(40), f"id {chance.randrange(6)}", update=chance.random() < 0.6)
    return an_event(chance, number)
