-- `epoch` grows by 1 each time a server takes the lease to run the notebook.
CREATE TABLE leases (
    notebook TEXT PRIMARY KEY,
    epoch    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
