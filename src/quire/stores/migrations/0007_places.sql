-- Where the notebook's document is, on a Jupyter server: {server, path, spec} as JSON; '' where its cells are here.
ALTER TABLE notebooks ADD COLUMN document TEXT NOT NULL DEFAULT '';
