"""Toolkit of the command line: the session with a server, its API as typed calls, output, waiting and progress."""
