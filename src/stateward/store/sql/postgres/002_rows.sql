-- What a batch of rows is written as. A view keeps the columns that its table had when it was made, so that processes of
-- this version go on when a later one adds a column.
CREATE VIEW objects_row AS SELECT * FROM objects;
CREATE VIEW operations_row AS SELECT * FROM operations;
CREATE VIEW work_row AS SELECT * FROM work;
CREATE VIEW progress_row AS SELECT * FROM progress;
CREATE VIEW locks_row AS SELECT * FROM locks;
CREATE VIEW timers_row AS SELECT * FROM timers;
CREATE VIEW answers_row AS SELECT * FROM answers;
CREATE VIEW lanes_row AS SELECT * FROM lanes;
CREATE VIEW lane_groups_row AS SELECT * FROM lane_groups;
CREATE VIEW journal_row AS SELECT * FROM journal;
