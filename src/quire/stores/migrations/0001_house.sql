-- A notebook belongs to one owner, who knows it by its name.
-- `runs` is its last execution count, `cells` how many cells it has, so that neither is ever counted.
CREATE TABLE notebooks (
    id         TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    name       TEXT NOT NULL,
    runtime    TEXT NOT NULL,
    created_at REAL NOT NULL,
    runs       INTEGER NOT NULL DEFAULT 0,
    cells      INTEGER NOT NULL DEFAULT 0,
    metadata   TEXT NOT NULL DEFAULT '{}',
    UNIQUE (owner, name)
) STRICT;

-- A cell's place among its notebook's cells, from 0 without gaps; `run` is its last run in the journal.
CREATE TABLE cells (
    notebook TEXT NOT NULL REFERENCES notebooks (id),
    id       TEXT NOT NULL,
    position INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    source   TEXT NOT NULL,
    version  INTEGER NOT NULL DEFAULT 1,
    run      TEXT,
    metadata TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (notebook, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX cells_by_position ON cells (notebook, position);

-- The journal: every run, in order, with what it showed. A row outlives its cell.
-- `seconds` is NULL while it runs; `value`, `outputs`, `imports` and `functions` are JSON.
CREATE TABLE runs (
    id         TEXT PRIMARY KEY,
    notebook   TEXT NOT NULL REFERENCES notebooks (id),
    cell       TEXT NOT NULL,
    count      INTEGER NOT NULL,
    source     TEXT NOT NULL,
    author     TEXT NOT NULL,
    started_at REAL NOT NULL,
    seconds    REAL,
    state      TEXT NOT NULL,
    cause      TEXT NOT NULL DEFAULT '',
    value      TEXT NOT NULL DEFAULT '[]',
    outputs    TEXT NOT NULL DEFAULT '[]',
    imports    TEXT NOT NULL DEFAULT '[]',
    functions  TEXT NOT NULL DEFAULT '[]'
) STRICT;

CREATE INDEX runs_by_count ON runs (notebook, count);
CREATE INDEX runs_under_way ON runs (notebook) WHERE state = 'RUNNING';
