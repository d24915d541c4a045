-- A namespace is read without the entries of all others.
CREATE INDEX journal_by_namespace ON journal (ns, seq);
