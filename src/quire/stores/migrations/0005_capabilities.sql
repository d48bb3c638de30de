-- MCP servers under a name, for one principal's notebooks: how each is reached (secrets as references), what it
-- offered when last seen, which calls a person approves; all as JSON.
CREATE TABLE capabilities (
    owner        TEXT NOT NULL,
    name         TEXT NOT NULL,
    backend      TEXT NOT NULL,
    offered      TEXT NOT NULL,
    approve      TEXT NOT NULL,
    installed_at REAL NOT NULL,
    PRIMARY KEY (owner, name)
);
