"""Opens the audit log, and the disk that it is on, from the settings."""

from __future__ import annotations

from contextlib import AsyncExitStack

from quire.core.ops.audit import Audit, AuditFiles, CallLog
from quire.core.ports.files import Disk
from quire.settings import Settings

_NAME = "audit.jsonl"


def open_call_log(settings: Settings, stack: AsyncExitStack) -> CallLog:
    """The audit log, open until `stack` closes. With a temporary store it is in memory."""
    from quire.stores.audit import FileAudit, MemoryAudit

    audit: Audit = MemoryAudit()
    if settings.store.kind == "sql":
        path = settings.store.data_dir / _NAME
        audit = file = FileAudit(path, max_bytes=settings.store.audit_file_bytes, max_files=settings.store.audit_files)
        stack.callback(file.close)
    return CallLog(audit, required=settings.store.audit_required)


def disk(settings: Settings) -> Disk | None:
    from quire.stores.data_directory import DataDirectory

    return DataDirectory(settings.store.data_dir) if settings.store.kind == "sql" else None


def open_files(settings: Settings) -> AuditFiles:
    """The files of the audit log, to read them."""
    from quire.stores.audit import AuditFileReader

    return AuditFileReader(settings.store.data_dir / _NAME)
