-- What a run under way has shown so far, piece by piece, as JSON: found when its server was killed, gone when it ended.
CREATE TABLE shown (
    run    TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    place  INTEGER NOT NULL,
    output TEXT NOT NULL,
    PRIMARY KEY (run, place)
) STRICT;
