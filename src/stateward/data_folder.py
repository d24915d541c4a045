"""The data folder of a server: its default place, its files, and the prefix of the environment's variables.

Commands read it before they do anything else, so it stands apart from the settings of servers: their records take
longer to import than a command may take to start.
"""

from msgspec import Struct

PREFIX = "STATEWARD_"
DEFAULT_FOLDER = "stateward-data"

DATABASE_FILE = "stateward.db"
TOKEN_FILE = "admin-token"  # noqa: S105 - the name of a file
SERVER_FILE = "server.json"
"""The files of a data folder: the embedded database, the administrator's token, and the address of its server."""


class ServerFile(Struct, frozen=True):
    """Where the server of a data folder can be reached from this machine, and which process it is.

    `namespace` is that of commands that name none, if it is not the default. The file of a server that has stopped
    has no address; it stays only if it has a namespace.
    """

    url: str
    pid: int = 0
    namespace: str | None = None
