-- What somebody who does not own a notebook may do with it: read or write.
CREATE TABLE shares (
    notebook  TEXT NOT NULL REFERENCES notebooks (id),
    principal TEXT NOT NULL,
    access    TEXT NOT NULL,
    PRIMARY KEY (notebook, principal)
) STRICT, WITHOUT ROWID;

CREATE INDEX shares_by_principal ON shares (principal);
