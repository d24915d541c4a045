-- What refers to an object without being its child: objects in its queue, and timers. Pruning looks them up.
CREATE INDEX objects_by_queue ON objects (ns, queue COLLATE "C") WHERE queue <> id;
CREATE INDEX timers_by_object ON timers ((ns || ''), object);
