-- Signals to operations that no wait has taken yet. A number may come back when its row is gone: it only orders the rows.
CREATE TABLE signals (
    ns      TEXT    NOT NULL,
    op      TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    who     TEXT    NOT NULL,
    at      REAL    NOT NULL,
    seq     INTEGER PRIMARY KEY
);
CREATE INDEX signals_by_operation ON signals (ns, op);
