-- The kinds that a worker knows, as a JSON list: work of other kinds is left to other workers.
ALTER TABLE workers ADD COLUMN kinds text NOT NULL DEFAULT '';
