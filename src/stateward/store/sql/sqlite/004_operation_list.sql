-- `bulk` is the first operation of an action on many objects that has no composite: the entry of all in lists.
-- The index has one row for each entry: parts are found through their parent or their bulk.
ALTER TABLE operations ADD COLUMN bulk TEXT;
CREATE INDEX operations_by_time ON operations (ns, created, id) WHERE parent IS NULL AND (bulk IS NULL OR bulk = id);
CREATE INDEX operations_by_bulk ON operations (ns, bulk) WHERE bulk IS NOT NULL;
