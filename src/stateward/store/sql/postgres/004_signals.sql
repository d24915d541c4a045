-- Signals to operations that no wait has taken yet.
CREATE SEQUENCE signal_seq;
CREATE TABLE signals (
    ns       text COLLATE "C" NOT NULL,
    op       text COLLATE "C" NOT NULL,
    name     text NOT NULL,
    payload  text NOT NULL,
    who      text NOT NULL,
    at       double precision NOT NULL,
    seq      bigint NOT NULL,
    PRIMARY KEY (ns, op, seq)
);
CREATE VIEW signals_row AS SELECT * FROM signals;
