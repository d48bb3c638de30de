-- What a document brings with a cell, as JSON: files its text refers to. `behind`: it, or a cell before it, was changed
-- after it ran.
ALTER TABLE cells ADD COLUMN attachments TEXT NOT NULL DEFAULT '{}';
ALTER TABLE cells ADD COLUMN behind INTEGER NOT NULL DEFAULT 0;

-- The ipynb file that is kept as the notebook is; '' where there is none.
ALTER TABLE notebooks ADD COLUMN mirror TEXT NOT NULL DEFAULT '';
