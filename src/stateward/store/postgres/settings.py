"""What we ask of the server for each kind of connection.

The plans of the writers are fixed. Their statements all go by keys, whatever the tables hold, and a plan that was made
once and never looks at a whole table is right from the first row to the hundred-millionth; the planner, left alone,
plans anew for each batch, or takes a new table for a small one and reads all of it long after it has grown.

Through a pooler in transaction mode (PgBouncer), a session belongs to nobody for longer than a transaction. There each
transaction begins by setting for itself what a session of ours is opened with.
"""

from collections.abc import Mapping

CALM: Mapping[str, str] = {"jit": "off"}

READING: Mapping[str, str] = {**CALM, "default_transaction_read_only": "on"}


def writing(idle_within: float) -> Mapping[str, str]:
    """Return the settings of a writer, whose transactions may stand still for only so long."""
    return {
        **CALM,
        "default_transaction_isolation": "read committed",
        "idle_in_transaction_session_timeout": str(round(idle_within * 1000)),
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }


def begin_with(settings: Mapping[str, str], schema: str) -> str:
    """Return the SQL that begins a transaction with settings of its own, on a schema that is spelled as SQL has it."""
    local = (f"SET LOCAL {name.removeprefix('default_')} = '{value}'" for name, value in settings.items())
    return "; ".join(["BEGIN", *local, f"SET LOCAL search_path = {schema}"])
