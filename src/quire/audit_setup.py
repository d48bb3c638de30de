"""Settings to the audit log, and to the disk that it is on."""

from __future__ import annotations

from contextlib import AsyncExitStack

from quire.core.ops.audit import Audit, AuditFiles, CallLog
from quire.core.ports.files import Disk
from quire.settings import Settings

_NAME = "audit.jsonl"


def open_call_log(settings: Settings, stack: AsyncExitStack) -> CallLog:
    """`stack` closes its file."""
    from quire.stores.audit import FileAudit, MemoryAudit

    audit: Audit = MemoryAudit()
    if settings.store.kind == "sql":
        path = settings.store.data_dir / _NAME
        audit = file = FileAudit(path, most_bytes=settings.store.audit_file_bytes, files=settings.store.audit_files)
        stack.callback(file.close)
    return CallLog(audit, required=settings.store.audit_required)


def disk(settings: Settings) -> Disk | None:
    from quire.stores.disk import DataDirectory

    return DataDirectory(settings.store.data_dir) if settings.store.kind == "sql" else None


def open_files(settings: Settings) -> AuditFiles:
    """The log as `quire audit` reads it."""
    from quire.stores.audit import ReadFiles

    return ReadFiles(settings.store.data_dir / _NAME)
