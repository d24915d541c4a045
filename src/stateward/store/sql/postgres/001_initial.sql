-- Columns stand in the order of the fields of the records, because whole rows travel as values of the table's type.
-- Keys are compared byte by byte (COLLATE "C"), so that every process and both databases agree on their order.
--
-- A second index over the namespace has it as the expression (ns || ''), and who wants that index says so. Else the
-- planner may take it for a look-up by the whole key, and read a whole namespace: on a table that was empty when it was
-- last looked at, as a queue often is, all indexes seem equally good. Partial indexes are safe from this as they are.

CREATE TYPE row_key AS (ns text, id text);

CREATE TABLE objects (
    ns          text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL,
    since       double precision NOT NULL,
    version     bigint NOT NULL,
    generation  bigint NOT NULL,
    op          text,
    queue       text NOT NULL,
    parent      text COLLATE "C",
    spec        text NOT NULL,
    labels      text NOT NULL,
    error       text,
    created     double precision NOT NULL,
    removed     boolean NOT NULL,
    seen        text NOT NULL,
    PRIMARY KEY (ns, id)
);
CREATE TYPE moved_row AS (
    ns text, id text, state text, since double precision, version bigint, generation bigint, op text, error text
);
CREATE INDEX objects_by_state ON objects (ns, kind, state) WHERE NOT removed;
CREATE INDEX objects_by_parent ON objects (ns, parent) WHERE parent IS NOT NULL;

CREATE TABLE operations (
    ns             text COLLATE "C" NOT NULL,
    id             text COLLATE "C" NOT NULL,
    object         text COLLATE "C" NOT NULL,
    kind           text NOT NULL,
    action         text NOT NULL,
    actor          text NOT NULL,
    who            text NOT NULL,
    facts          text NOT NULL,
    args           text NOT NULL,
    origin         text NOT NULL,
    via            text NOT NULL,
    desired        text NOT NULL,
    failing        text NOT NULL,
    hidden         boolean NOT NULL,
    within         double precision NOT NULL,
    generation     bigint NOT NULL,
    previous_spec  text,
    parent         text COLLATE "C",
    tree           text,
    status         text NOT NULL,
    attempts       integer NOT NULL,
    steps          text NOT NULL,
    result         text,
    error          text,
    created        double precision NOT NULL,
    started        double precision,
    ended          double precision,
    PRIMARY KEY (ns, id)
) WITH (fillfactor = 50);  -- room for the ending of each on its own page: it then needs no new entries in the indexes
CREATE INDEX operations_by_object ON operations ((ns || ''), object, created);
CREATE INDEX operations_by_parent ON operations (ns, parent) WHERE parent IS NOT NULL;

CREATE TYPE ended_row AS (
    ns text, op text, status text, attempts integer,
    started double precision, ended double precision, result text, error text
);
CREATE TYPE steps_row AS (ns text, op text, steps text);

-- `delayed` work waits for its time outside of the claimers' index, however much of it there is; the first claim after
-- that time moves it over.
CREATE SEQUENCE work_seq;
CREATE TABLE work (
    ns          text COLLATE "C" NOT NULL,
    op          text COLLATE "C" NOT NULL,
    object      text COLLATE "C" NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    lane        text COLLATE "C" NOT NULL,
    grp         text COLLATE "C" NOT NULL,
    priority    integer NOT NULL,
    ready       boolean NOT NULL,
    remote      boolean NOT NULL,
    fenced      boolean NOT NULL,
    cancelled   boolean NOT NULL,
    children    integer NOT NULL,
    not_before  double precision NOT NULL,
    deadline    double precision,
    owner       text,
    epoch       bigint NOT NULL,
    attempts    integer NOT NULL,
    observe     boolean NOT NULL,
    delayed     boolean NOT NULL,
    PRIMARY KEY (ns, op)
) WITH (autovacuum_vacuum_cost_delay = 0);
CREATE INDEX work_by_queue ON work ((ns || ''), queue, seq);
CREATE INDEX work_claimable ON work (lane, priority DESC, seq)
    WHERE ready AND NOT remote AND NOT fenced AND children = 0 AND owner IS NULL AND NOT delayed;
CREATE INDEX work_delayed ON work (not_before)
    WHERE ready AND NOT remote AND NOT fenced AND children = 0 AND owner IS NULL AND delayed;
CREATE INDEX work_owned ON work (lane, owner) WHERE owner IS NOT NULL;
CREATE INDEX work_by_deadline ON work (deadline) WHERE deadline IS NOT NULL;

CREATE SEQUENCE journal_seq;
CREATE TABLE journal (
    ns      text COLLATE "C" NOT NULL,
    object  text COLLATE "C" NOT NULL,
    kind    text NOT NULL,
    op      text,
    at      double precision NOT NULL,
    actor   text NOT NULL,
    who     text NOT NULL,
    event   text NOT NULL,
    source  text,
    target  text,
    reason  text,
    spec    text,
    seq     bigint PRIMARY KEY
);
CREATE INDEX journal_by_object ON journal (ns, object, seq);

CREATE SEQUENCE progress_seq;
CREATE TABLE progress (
    ns     text COLLATE "C" NOT NULL,
    op     text COLLATE "C" NOT NULL,
    at     double precision NOT NULL,
    text   text NOT NULL,
    done   bigint,
    total  bigint,
    seq    bigint NOT NULL,
    PRIMARY KEY (ns, op, seq)
);

-- A tree has a row of its own only to be locked by.
CREATE TABLE trees (
    ns  text COLLATE "C" NOT NULL,
    id  text COLLATE "C" NOT NULL,
    PRIMARY KEY (ns, id)
);
CREATE SEQUENCE lock_seq;
CREATE TABLE locks (
    ns       text COLLATE "C" NOT NULL,
    tree     text COLLATE "C" NOT NULL,
    path     text COLLATE "C" NOT NULL,
    mode     text COLLATE "C" NOT NULL,
    op       text COLLATE "C" NOT NULL,
    waiting  boolean NOT NULL,
    seq      bigint NOT NULL,
    PRIMARY KEY (ns, tree, path, op, mode)
);
CREATE INDEX locks_by_op ON locks ((ns || ''), op);

CREATE TABLE timers (
    ns      text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    due     double precision NOT NULL,
    rank    integer NOT NULL,
    object  text COLLATE "C" NOT NULL,
    event   text NOT NULL,
    facts   text NOT NULL,
    args    text NOT NULL,
    PRIMARY KEY (ns, id)
);
CREATE INDEX timers_by_due ON timers (due, rank);

CREATE TABLE lane_groups (
    grp    text COLLATE "C" PRIMARY KEY,
    lanes  integer NOT NULL
);
CREATE TABLE lanes (
    lane       text COLLATE "C" PRIMARY KEY,
    grp        text COLLATE "C" NOT NULL,
    capacity   integer NOT NULL,
    back_off   double precision NOT NULL,
    opened     double precision NOT NULL,
    throttled  integer NOT NULL
);

CREATE TABLE workers (
    id     text COLLATE "C" PRIMARY KEY,
    lease  double precision NOT NULL,
    seen   double precision NOT NULL,
    host   text NOT NULL,
    pid    bigint NOT NULL
);

CREATE TABLE answers (
    ns           text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    fingerprint  text NOT NULL,
    op           text,
    object       text NOT NULL,
    at           double precision NOT NULL,
    PRIMARY KEY (ns, key)
);
