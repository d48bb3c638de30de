-- A pack is a file that chunks are appended to. What lies behind `bytes` is what a crash left, and is cut off.
-- A full one is never written again. An id is never given twice: a row that outlived its pack means no other.
CREATE TABLE packs (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    file     TEXT NOT NULL UNIQUE,
    notebook TEXT NOT NULL,
    bytes    INTEGER NOT NULL DEFAULT 0,
    full     INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX packs_to_fill ON packs (notebook) WHERE full = 0;

-- Where each chunk lies, by the SHA-256 of its bytes. `sums` is how many bytes the chunks that a node lists have
-- together: it is there once the node was checked, and then they all are.
CREATE TABLE chunks (
    name       BLOB PRIMARY KEY,
    pack       INTEGER NOT NULL,
    offset     INTEGER NOT NULL,
    length     INTEGER NOT NULL,
    stored     INTEGER NOT NULL,
    compressed INTEGER NOT NULL,
    sums       INTEGER
) STRICT, WITHOUT ROWID;

-- A notebook's snapshots in order. `variables`, `functions` and `lost` are JSON, taken from the manifest so that a
-- list reads none; `manifest` is compressed with zlib, `signature` is over it as it was before.
CREATE TABLE snapshots (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    notebook   TEXT NOT NULL,
    run        TEXT,
    name       TEXT NOT NULL,
    created_at REAL NOT NULL,
    python     TEXT NOT NULL,
    size       INTEGER NOT NULL,
    added      INTEGER NOT NULL,
    seconds    REAL NOT NULL,
    variables  TEXT NOT NULL,
    functions  TEXT NOT NULL,
    lost       TEXT NOT NULL,
    format     INTEGER NOT NULL,
    signature  BLOB NOT NULL,
    manifest   BLOB NOT NULL
) STRICT;

CREATE INDEX snapshots_of_notebook ON snapshots (notebook, seq);
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (notebook, name) WHERE name <> '';
