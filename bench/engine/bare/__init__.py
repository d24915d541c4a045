"""The raw limit: bare SQL in batches, as durable as the engine, that writes the very rows which the engine writes.

For each action: the request (the object is changed; its operation, its work and a line of the journal are added), the
claim (the work is changed), the finish (the object and the operation are changed, the work is removed, another line is
added). Each of the three is one transaction for a whole batch. Nothing is read, decided, checked or waited for.
"""

from bench.engine.bare import postgres, sqlite
from bench.engine.workload import Workloads

NAMES: Workloads = {
    "bare-sqlite": sqlite.Actions,
    "bare-sqlite-group": sqlite.Group,
    "bare-sqlite-objects": sqlite.Objects,
    "bare-postgres": postgres.Actions,
    "bare-postgres-group": postgres.Group,
    "bare-postgres-objects": postgres.Objects,
}
