-- The end of an operation can have its steps, which tell its last provider calls: one write for both.
CREATE TYPE ended_row_2 AS (
    ns text, op text, status text, attempts integer,
    started double precision, ended double precision, result text, error text, steps text
);
