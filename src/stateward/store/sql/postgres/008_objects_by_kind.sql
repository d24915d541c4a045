-- A page of a kind is read in the order of ids; the index of states would have to be sorted for each page.
CREATE INDEX objects_by_kind ON objects (ns, kind, id) WHERE NOT removed;
