-- Everything that Stateward knows. Tables have the columns of the records of the same name, in the same order.
--
-- Objects, operations and work keep SQLite's own row number: random ids then cost a page of a narrow index and not one
-- of the wide table, and the row number is the order of acceptance.

CREATE TABLE objects (
    ns         TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    since      REAL    NOT NULL,
    version    INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    op         TEXT,
    queue      TEXT    NOT NULL,
    parent     TEXT,
    spec       TEXT    NOT NULL,
    labels     TEXT    NOT NULL,
    error      TEXT,
    created    REAL    NOT NULL,
    removed    INTEGER NOT NULL,
    seen       TEXT    NOT NULL,
    PRIMARY KEY (ns, id)
);
-- `removed` is in the index only so that counting states need not look at the objects themselves.
CREATE INDEX objects_by_state ON objects (ns, kind, state, id, removed) WHERE removed = 0;
CREATE INDEX objects_by_parent ON objects (ns, parent) WHERE parent IS NOT NULL;

CREATE TABLE operations (
    ns            TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    object        TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    action        TEXT    NOT NULL,
    actor         TEXT    NOT NULL,
    who           TEXT    NOT NULL,
    facts         TEXT    NOT NULL,
    args          TEXT    NOT NULL,
    origin        TEXT    NOT NULL,
    via           TEXT    NOT NULL,
    desired       TEXT    NOT NULL,
    failing       TEXT    NOT NULL,
    hidden        INTEGER NOT NULL,
    within        REAL    NOT NULL,
    generation    INTEGER NOT NULL,
    previous_spec TEXT,
    parent        TEXT,
    tree          TEXT,
    status        TEXT    NOT NULL,
    attempts      INTEGER NOT NULL,
    steps         TEXT    NOT NULL,
    result        TEXT,
    error         TEXT,
    created       REAL    NOT NULL,
    started       REAL,
    ended         REAL,
    PRIMARY KEY (ns, id)
);
CREATE INDEX operations_by_object ON operations (ns, object);
CREATE INDEX operations_by_parent ON operations (ns, parent) WHERE parent IS NOT NULL;

-- `delayed` is set while `not_before` lies ahead, as of when the row was last looked at; without it, the claimers would
-- have to walk past everything that is not due yet.
CREATE TABLE work (
    ns         TEXT    NOT NULL,
    op         TEXT    NOT NULL,
    object     TEXT    NOT NULL,
    queue      TEXT    NOT NULL,
    seq        INTEGER PRIMARY KEY,
    lane       TEXT    NOT NULL,
    grp        TEXT    NOT NULL,
    priority   INTEGER NOT NULL,
    ready      INTEGER NOT NULL,
    remote     INTEGER NOT NULL,
    fenced     INTEGER NOT NULL,
    cancelled  INTEGER NOT NULL,
    children   INTEGER NOT NULL,
    not_before REAL    NOT NULL,
    deadline   REAL,
    owner      TEXT,
    epoch      INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    observe    INTEGER NOT NULL,
    delayed    INTEGER NOT NULL,
    UNIQUE (ns, op)
);
CREATE INDEX work_by_queue ON work (ns, queue);
CREATE INDEX work_claimable ON work (lane, priority DESC)
    WHERE delayed = 0 AND owner IS NULL AND ready = 1 AND remote = 0 AND fenced = 0 AND children = 0;
CREATE INDEX work_delayed ON work (not_before)
    WHERE delayed = 1 AND owner IS NULL AND ready = 1 AND remote = 0 AND fenced = 0 AND children = 0;
CREATE INDEX work_owned ON work (lane, grp, owner) WHERE owner IS NOT NULL;
CREATE INDEX work_deadlines ON work (deadline) WHERE deadline IS NOT NULL;

CREATE TABLE journal (
    ns     TEXT NOT NULL,
    object TEXT NOT NULL,
    kind   TEXT NOT NULL,
    op     TEXT,
    at     REAL NOT NULL,
    actor  TEXT NOT NULL,
    who    TEXT NOT NULL,
    event  TEXT NOT NULL,
    source TEXT,
    target TEXT,
    reason TEXT,
    spec   TEXT,
    seq    INTEGER PRIMARY KEY
);
CREATE INDEX journal_by_object ON journal (ns, object);

CREATE TABLE progress (
    ns    TEXT NOT NULL,
    op    TEXT NOT NULL,
    at    REAL NOT NULL,
    text  TEXT NOT NULL,
    done  INTEGER,
    total INTEGER,
    seq   INTEGER PRIMARY KEY
);
CREATE INDEX progress_by_operation ON progress (ns, op);

CREATE TABLE locks (
    ns      TEXT    NOT NULL,
    tree    TEXT    NOT NULL,
    path    TEXT    NOT NULL,
    mode    TEXT    NOT NULL,
    op      TEXT    NOT NULL,
    waiting INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (ns, tree, op, path, mode)
) WITHOUT ROWID;
CREATE INDEX locks_by_operation ON locks (ns, op);

CREATE TABLE timers (
    ns     TEXT    NOT NULL,
    id     TEXT    NOT NULL,
    due    REAL    NOT NULL,
    rank   INTEGER NOT NULL,
    object TEXT    NOT NULL,
    event  TEXT    NOT NULL,
    facts  TEXT    NOT NULL,
    args   TEXT    NOT NULL,
    PRIMARY KEY (ns, id)
);
CREATE INDEX timers_by_due ON timers (due, rank);

CREATE TABLE answers (
    ns          TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    op          TEXT,
    object      TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (ns, key)
) WITHOUT ROWID;

CREATE TABLE lanes (
    lane      TEXT    NOT NULL PRIMARY KEY,
    grp       TEXT    NOT NULL,
    capacity  INTEGER NOT NULL,
    back_off  REAL    NOT NULL,
    opened    REAL    NOT NULL,
    throttled INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE lane_groups (
    grp   TEXT    NOT NULL PRIMARY KEY,
    lanes INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE workers (
    id    TEXT    NOT NULL PRIMARY KEY,
    lease REAL    NOT NULL,
    seen  REAL    NOT NULL,
    host  TEXT    NOT NULL,
    pid   INTEGER NOT NULL
) WITHOUT ROWID;

-- The last numbers given: kept apart, because a number must not come back when the row that had it is gone.
CREATE TABLE numbers (
    work     INTEGER NOT NULL,
    lock     INTEGER NOT NULL,
    journal  INTEGER NOT NULL,
    progress INTEGER NOT NULL
);
INSERT INTO numbers VALUES (0, 0, 0, 0);
