"""Toolkit of the command line: the session with a server, its API as typed calls, output, waiting and progress.

The commands of a domain need no more than the names here. They are imported when they are used: `--help` and completion
must not wait for an HTTP library.
"""

from typing import TYPE_CHECKING

from stateward.lazy_names import lazy_names

if TYPE_CHECKING:
    from stateward.client.action_requests import accepted_outcome, finish_requests, request_each, wait_for_outcomes
    from stateward.client.api import ApiClient
    from stateward.client.arguments import ObjectSelector
    from stateward.client.formatting import filled_table
    from stateward.client.session import Session, on_server, requests_action
    from stateward.client.url_paths import url_path
    from stateward.schemas.objects import ObjectView

__all__ = [
    "ApiClient",
    "ObjectSelector",
    "ObjectView",
    "Session",
    "accepted_outcome",
    "filled_table",
    "finish_requests",
    "on_server",
    "request_each",
    "requests_action",
    "url_path",
    "wait_for_outcomes",
]

__getattr__ = lazy_names(
    __name__,
    {
        "stateward.client.action_requests": (
            "accepted_outcome",
            "finish_requests",
            "request_each",
            "wait_for_outcomes",
        ),
        "stateward.client.api": ("ApiClient",),
        "stateward.client.arguments": ("ObjectSelector",),
        "stateward.client.formatting": ("filled_table",),
        "stateward.client.session": ("Session", "on_server", "requests_action"),
        "stateward.client.url_paths": ("url_path",),
        "stateward.schemas.objects": ("ObjectView",),
    },
)
