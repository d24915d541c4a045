"""Locks in the memory of one process: a lock, a tree of locks, a fair queue, the actions of systems.

The server does not use them: the engine keeps its locks as rows of the store, and shares `modes` and `paths` with this
package. They are for users who embed Stateward's locking in a program of their own, for the tests and for the benches.
"""
