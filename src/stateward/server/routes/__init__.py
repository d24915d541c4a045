"""The routes of the generic API: objects, actions, operations, the journal, administration."""
