"""Run a piece of Python of the documentation, which its first argument is, as `python -c` does."""

import sys

if __name__ == "__main__":
    exec(compile(sys.argv[1], "<documentation>", "exec"), {"__name__": "__main__"})
