-- A namespace is read without the entries of all others. The namespace is an expression, as 001 says.
CREATE INDEX journal_by_namespace ON journal ((ns || ''), seq);
