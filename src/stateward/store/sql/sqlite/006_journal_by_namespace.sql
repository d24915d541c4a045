-- A namespace is read without the entries of all others; the row number is the last part of each index.
CREATE INDEX journal_by_namespace ON journal (ns);
