"""The console for results: what it writes into pipes and files has no padding."""

import re
from typing import Any

from rich.console import Console

PADDING = re.compile(r" +$", re.MULTILINE)


class ResultConsole(Console):
    """A console that writes no trailing spaces into pipes and files: scripts that compare lines do not expect them."""

    def print(self, *objects: Any, **how: Any) -> None:  # noqa: ANN401 - as in the base class
        """Print to the terminal, or print lines without the padding of their last column."""
        if self.is_terminal:
            super().print(*objects, **how)
            return
        with self.capture() as captured:
            super().print(*objects, **how)
        try:
            self.file.write(PADDING.sub("", captured.get()))
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()
