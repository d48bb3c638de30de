"""Recording runs: their start, what they show soon after they showed it, and their outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from quire.core.errors import OperationFailed, QuireError
from quire.core.model import CellId, Data, NotebookId, Output, OutputType, Run
from quire.core.notebooks.outputs import Outputs
from quire.core.ops.change_bus import Change, Feed
from quire.core.ports.store import Blobs, RunStore
from quire.core.runs import transcript as transcripts
from quire.core.runs.active_run import RunState

log = logging.getLogger(__name__)
_WRITE_DELAY_S = 0.2  # between new output and its first write; a run that ends sooner is written once, at its end
_IDLE_POLLS = 5  # polls without new output before the recorder waits for an event
_MAX_TIME_SHARE = 0.01  # of the time may go into writing what one run shows
_MAX_TIME_SHARE_LIVE = 0.3  # the same for a document on a Jupyter server, which people watch
_MAX_INTERVAL_S = 10.0  # between two writes
_MAX_EARLY_BLOB_BYTES = 8 << 20  # of one run before its end: blobs that the output cap drops later are never removed


@dataclass
class _WriteState:
    """What was written of a run under way."""

    not_before: float = 0.0  # time of the next write, at the earliest
    blob_bytes: int = 0


class Recorder:
    def __init__(
        self,
        run_store: RunStore,
        blobs: Blobs,
        feed: Feed,
        max_cells: int,
        on_end: Callable[[Run], None] = lambda run: None,
    ) -> None:
        """`on_end` is called with each run that ended. It returns at once and never raises."""
        self._run_store = run_store
        self._blobs = blobs
        self._outputs = Outputs(blobs)
        self._feed = feed
        self._max_cells = max_cells
        self._on_end = on_end
        self._due: dict[RunState, float] = {}  # runs with new output, and the time of the next write
        self._written: dict[RunState, _WriteState] = {}
        self._has_due = anyio.Event()
        self._unrecorded: list[tuple[NotebookId, Run]] = []  # ended, but not recorded: the disk was full

    async def begin(self, state: RunState, run: Run) -> Run:
        """Record that the run begins. Returns it with its cell and number."""
        await self._flush_unrecorded()
        cell = await self._run_store.begin_run(state.notebook.id, state.target, run, limit=self._max_cells)
        assert cell.run is not None
        state.begin(cell)
        self.publish(state)
        return cell.run

    def publish(self, state: RunState) -> None:
        """Tell listeners that the run's cell changed."""
        assert state.cell is not None
        self._feed.tell(Change(notebook=state.notebook, cell=state.cell.id, number=state.cell.number))

    def mark_dirty(self, state: RunState) -> None:
        """The run has shown something new. This is called for each event, so it must be cheap."""
        if state not in self._due:
            soon = anyio.current_time() + _WRITE_DELAY_S
            self._due[state] = max(soon, self._written[state].not_before) if state in self._written else soon
            self._has_due.set()

    async def write_new_output(self) -> None:
        """Write what runs under way show, until it is cancelled."""
        idle_polls = 0
        while True:
            if self._due:
                idle_polls = 0
                await anyio.sleep_until(min(self._due.values()))
                await self._write_due()
            elif idle_polls < _IDLE_POLLS:  # polling costs less than waking up for each of many quick runs
                idle_polls += 1
                await anyio.sleep(_WRITE_DELAY_S)
            else:
                idle_polls, self._has_due = 0, anyio.Event()
                await self._has_due.wait()

    async def finish(self, state: RunState, ended: Run, outputs: list[Output]) -> None:
        """Record the outcome. If the disk is full, `state.error` says so and it is recorded before the next run."""
        self._due.pop(state, None)
        self._written.pop(state, None)
        try:
            stored = [await self._outputs.store(output) for output in outputs]
        except QuireError as error:
            state.error = error
            stored = [transcripts.error_output("Lost", str(error))]
        ended = replace(ended, outputs=tuple(stored))
        state.set_outcome(ended)
        try:
            await self._run_store.finish_run(state.notebook.id, ended)
        except QuireError as error:
            not_recorded = OperationFailed(f"The cell has run ({ended.state}), and that is not recorded. {error}")
            state.error = state.error or not_recorded  # the first error says most
            self._unrecorded.append((state.notebook.id, ended))
        try:
            await self._update_other_cells(state)
        except QuireError as error:  # a full disk: the run itself is recorded
            state.error = state.error or error
        state.cell = state.final_cell
        self._on_end(ended)

    async def _update_other_cells(self, state: RunState) -> None:
        """Replace outputs of earlier cells that this run updated by their display id."""
        changed: dict[CellId, None] = {}
        for display_id, event in state.transcript.updates.items():
            shown = await self._outputs.store(transcripts.display_output(event))
            for run in await self._run_store.find_runs_by_display_id(state.notebook.id, display_id):
                if state.cell is None or state.cell.run is None or run.id != state.cell.run.id:
                    outputs = tuple(_updated(output, shown) for output in run.outputs)
                    await self._run_store.finish_run(state.notebook.id, replace(run, outputs=outputs))
                    changed[run.cell] = None
        for cell in changed:
            self._feed.tell(Change(notebook=state.notebook, cell=cell))

    async def _flush_unrecorded(self) -> None:
        """Record the outcomes that could not be written before."""
        unrecorded, self._unrecorded = self._unrecorded, []  # at once: another notebook may flush meanwhile
        for place, (notebook, run) in enumerate(unrecorded):
            try:
                await self._run_store.finish_run(notebook, run)
            except QuireError:
                self._unrecorded += unrecorded[place:]
                raise

    async def _write_due(self) -> None:
        # a function of its own: while the caller waits, no local variable may keep the output of an ended run alive
        for state in [state for state, due in self._due.items() if due <= anyio.current_time()]:
            if self._due.pop(state, None) is not None:  # it has not ended meanwhile
                await self._write(state)

    async def _write(self, state: RunState) -> None:
        assert state.cell is not None and state.cell.run is not None
        begun, written = anyio.current_time(), self._written.setdefault(state, _WriteState())
        pause = _MAX_INTERVAL_S
        news, dropped = state.transcript.take_new()
        try:
            stored = {place: await self._store_early(output, written) for place, output in news.items()}
            await self._run_store.save_outputs(state.notebook.id, state.cell.run.id, stored, dropped)
            share = _MAX_TIME_SHARE_LIVE if state.notebook.document is not None else _MAX_TIME_SHARE
            pause = min((anyio.current_time() - begun) / share, _MAX_INTERVAL_S)
        except QuireError:  # a full disk: if it still is when the run ends, the answer says so
            state.transcript.put_back(news, dropped)
        except Exception:  # a bug here costs the output, not the run
            log.exception("writing the output of a run in notebook %r", state.notebook.name)
        written.not_before = anyio.current_time() + pause
        if state.transcript.has_new and state in self._written:  # it has not ended meanwhile
            self._due[state] = written.not_before

    async def _store_early(self, output: Output, written: _WriteState) -> Output:
        """Put bytes into blobs, up to a limit. Text stays in the output."""
        bundle: dict[str, Data] = {mime: data for mime, data in output.bundle.items() if isinstance(data, str)}
        for mime, data in output.bundle.items():
            if not isinstance(data, bytes) or output.type is OutputType.STREAM:
                continue  # bytes of a stream repeat its text
            if written.blob_bytes + len(data) <= _MAX_EARLY_BLOB_BYTES:
                written.blob_bytes += len(data)
                bundle[mime] = await self._blobs.put(data)
            else:
                left_out = f"[{mime} of {len(data):,} bytes: too much to be kept before the end of the run]"
                bundle["text/plain"] = "\n".join(filter(None, (str(bundle.get("text/plain", "")), left_out)))
        return replace(output, bundle=bundle)


def _updated(output: Output, shown: Output) -> Output:
    return replace(shown, result=output.result) if output.display_id == shown.display_id else output
