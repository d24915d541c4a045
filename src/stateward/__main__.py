"""`python -m stateward` is the command line."""

from stateward.cli.main import run

run()
