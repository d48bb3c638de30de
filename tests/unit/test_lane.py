"""The way to SQLite that writes: what goes over it at once, and how long its log gets."""

from __future__ import annotations

from pathlib import Path

from quire.stores.lane import Lane

_LARGE = 5_000_000  # bytes


async def test_the_log_of_large_jobs_is_put_into_the_database_before_it_is_large_itself(tmp_path: Path) -> None:
    path = tmp_path / "quire.db"
    lane = Lane(path, writes=True)
    try:
        await lane.do(lambda db: db.execute("CREATE TABLE large (data)"))
        for _ in range(20):
            await lane.do(lambda db: db.execute("INSERT INTO large VALUES (zeroblob(?))", (_LARGE,)))
        assert path.with_name("quire.db-wal").stat().st_size < 8 * _LARGE
    finally:
        await lane.close()
