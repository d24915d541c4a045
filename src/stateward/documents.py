"""YAML as nodes, read by libyaml, which is fast; but what is nested without measure would overrun its stack.

No error could be caught then: the process would die of a file that somebody sent. So the events are looked at first,
which takes no stack, and nothing is put together that goes deeper than any honest file does.
"""

from typing import Any

import yaml
from yaml import CollectionEndEvent, CollectionStartEvent, MarkedYAMLError, Node

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 100


def compose(text: str) -> Node | None:
    """Return the nodes of a text; raises YAML's own errors, also for what is nested too deeply."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        depth += isinstance(event, CollectionStartEvent)
        depth -= isinstance(event, CollectionEndEvent)
        if depth > DEEPEST:
            raise MarkedYAMLError(problem=f"nested more than {DEEPEST} deep", problem_mark=event.start_mark)
    node: Node | None = yaml.compose(text, Loader=LOADER)
    return node
