"""Recording runs: what they have shown, soon after they showed it, and how they ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import anyio

from quire.core.errors import OperationFailed, QuireError
from quire.core.model import CellId, Data, NotebookId, Output, OutputType, Run
from quire.core.notebooks.outputs import keep
from quire.core.ports.store import Blobs, Store
from quire.core.runs import transcript as transcripts
from quire.core.runs.active_run import ActiveRun

log = logging.getLogger(__name__)
_SOON = 0.2  # seconds from something new until it is kept; a run that ends sooner is written once, at its end
_AWAKE = 5  # times it is looked for something new before that is waited for
_SHARE = 0.01  # of the time that may go into keeping what one run shows: the larger, the rarer
_LIVE = 0.3  # the same, where people look at the document it is shown in
_RARELY = 10.0  # seconds between two times at the most
_PICTURES = 8 << 20  # bytes of one run's blobs before its end: those that fall to the cap later are never removed


@dataclass
class _Kept:
    """What was kept of a run under way."""

    not_before: float = 0.0  # when it may be kept again
    size: int = 0  # bytes of blobs


class Recorder:
    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store = store
        self._blobs = blobs
        self._due: dict[ActiveRun, float] = {}  # runs with something new, and when that is kept
        self._kept: dict[ActiveRun, _Kept] = {}
        self._news = anyio.Event()
        self._owed: list[tuple[NotebookId, Run]] = []  # ended, but not recorded: the disk was full

    def heard(self, active: ActiveRun) -> None:
        """The run has shown something new. Called for each event: nothing here may cost."""
        if active not in self._due:
            soon = anyio.current_time() + _SOON
            self._due[active] = max(soon, self._kept[active].not_before) if active in self._kept else soon
            self._news.set()

    async def keep_shown(self) -> None:
        """Keep what runs under way have shown; goes on until it is cancelled."""
        idle = 0
        while True:
            if self._due:
                idle = 0
                await anyio.sleep_until(min(self._due.values()))
                await self._keep_due()
            elif idle < _AWAKE:  # to be woken by each of many quick runs costs more than to look again
                idle += 1
                await anyio.sleep(_SOON)
            else:
                idle, self._news = 0, anyio.Event()
                await self._news.wait()

    async def finish(self, active: ActiveRun, ended: Run, outputs: list[Output]) -> Run:
        """The run as it is recorded. What does not fit on the disk is the caller's to hear, and is owed."""
        self._due.pop(active, None)
        self._kept.pop(active, None)
        try:
            kept = [await keep(self._blobs, output) for output in outputs]
        except QuireError as error:
            active.error = error
            kept = [transcripts.error("Lost", str(error))]
        ended = replace(ended, outputs=tuple(kept))
        active.settle(ended)
        try:
            await self._store.finish_run(active.notebook.id, ended)
        except QuireError as error:
            over = OperationFailed(f"The cell has run ({ended.state}), and that is not recorded. {error}")
            active.error = active.error or over  # what went wrong first says most
            self._owed.append((active.notebook.id, ended))
        return ended

    async def update_elsewhere(self, active: ActiveRun) -> list[CellId]:
        """What the run showed anew under a display id takes the old one's place in cells before; which those are."""
        touched: dict[CellId, None] = {}
        for display_id, event in active.transcript.updates.items():
            shown = await keep(self._blobs, transcripts.display(event))
            for run in await self._store.find_displayed(active.notebook.id, display_id):
                if active.cell is None or active.cell.run is None or run.id != active.cell.run.id:
                    outputs = tuple(_updated(each, shown) for each in run.outputs)
                    await self._store.finish_run(active.notebook.id, replace(run, outputs=outputs))
                    touched[run.cell] = None
        return list(touched)

    async def pay(self) -> None:
        """Record what could not be recorded when it ended."""
        owed, self._owed = self._owed, []  # taken at once: another notebook may come to pay meanwhile
        for place, (notebook, run) in enumerate(owed):
            try:
                await self._store.finish_run(notebook, run)
            except QuireError:
                self._owed += owed[place:]
                raise

    async def _keep_due(self) -> None:
        # a function of its own: whoever waits for the next news must not hold on to what an ended run had shown
        for active in [active for active, due in self._due.items() if due <= anyio.current_time()]:
            if self._due.pop(active, None) is not None:  # it has not ended meanwhile
                await self._keep(active)

    async def _keep(self, active: ActiveRun) -> None:
        assert active.cell is not None and active.cell.run is not None
        begun, kept = anyio.current_time(), self._kept.setdefault(active, _Kept())
        wait = _RARELY
        news, dropped = active.transcript.news()
        try:
            rested = {place: await self._at_rest(output, kept) for place, output in news.items()}
            await self._store.keep_outputs(active.notebook.id, active.cell.run.id, rested, dropped)
            share = _LIVE if active.notebook.document is not None else _SHARE
            wait = min((anyio.current_time() - begun) / share, _RARELY)
        except QuireError:  # a full disk: if it still is when the run ends, the answer says so
            active.transcript.not_kept(news, dropped)
        except Exception:  # a fault of ours costs what was shown, not the run
            log.exception("keeping what a run in notebook %r has shown", active.notebook.name)
        kept.not_before = anyio.current_time() + wait
        if active.transcript.has_news and active in self._kept:  # it has not ended meanwhile
            self._due[active] = kept.not_before

    async def _at_rest(self, output: Output, kept: _Kept) -> Output:
        """Text lies in the store, bytes in the blobs as at the end, up to a limit."""
        bundle: dict[str, Data] = {mime: data for mime, data in output.bundle.items() if isinstance(data, str)}
        for mime, data in output.bundle.items():
            if not isinstance(data, bytes) or output.type is OutputType.STREAM:
                continue  # bytes of a stream are its text once more
            if kept.size + len(data) <= _PICTURES:
                kept.size += len(data)
                bundle[mime] = await self._blobs.put(data)
            else:
                left_out = f"[{mime} of {len(data):,} bytes: too much to be kept before the end of the run]"
                bundle["text/plain"] = "\n".join(filter(None, (str(bundle.get("text/plain", "")), left_out)))
        return replace(output, bundle=bundle)


def _updated(output: Output, shown: Output) -> Output:
    return replace(shown, result=output.result) if output.display_id == shown.display_id else output
