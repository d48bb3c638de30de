"""Settings to where calls are recorded: the audit log, and the disk it lies on."""

from __future__ import annotations

from contextlib import AsyncExitStack

from quire.core.ops.audit import Audit, AuditFiles, Calls
from quire.core.ports.files import Disk
from quire.settings import Settings

_NAME = "audit.jsonl"


def calls(settings: Settings, stack: AsyncExitStack) -> Calls:
    """Until the stack is left."""
    from quire.stores.audit import FileAudit, MemoryAudit

    audit: Audit = MemoryAudit()
    if settings.store.kind == "sql":
        path = settings.store.data_dir / _NAME
        audit = file = FileAudit(path, most_bytes=settings.store.audit_file_bytes, files=settings.store.audit_files)
        stack.callback(file.close)
    return Calls(audit, required=settings.store.audit_required)


def disk(settings: Settings) -> Disk | None:
    from quire.stores.disk import DataDirectory

    return DataDirectory(settings.store.data_dir) if settings.store.kind == "sql" else None


def files(settings: Settings) -> AuditFiles:
    """The audit log on disk, for people to read."""
    from quire.stores.audit import ReadFiles

    return ReadFiles(settings.store.data_dir / _NAME)
