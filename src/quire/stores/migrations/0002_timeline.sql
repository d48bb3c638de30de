-- How a notebook's code runs, as JSON; where it branched off: of which notebook, after which run,
-- and the first notebook of the family, in whose workspace they all work.
ALTER TABLE notebooks ADD COLUMN policy TEXT NOT NULL DEFAULT '{}';
ALTER TABLE notebooks ADD COLUMN origin TEXT;
ALTER TABLE notebooks ADD COLUMN origin_run TEXT;
ALTER TABLE notebooks ADD COLUMN root TEXT;

-- The run whose state a run began with, NULL in a fresh kernel: runs are a tree, and a rollback begins a branch in it.
-- `stale`: the namespace was rolled back to before this run.
ALTER TABLE runs ADD COLUMN parent TEXT;
ALTER TABLE runs ADD COLUMN stale INTEGER NOT NULL DEFAULT 0;
