"""The data folder of a server: the embedded database, the administrator's token, the address of the server."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

import msgspec

from stateward.access import Role, Tokens
from stateward.access.lifecycle import TokenState
from stateward.access.tokens import ANY, TokenInfo
from stateward.config import Config
from stateward.data_folder import DATABASE_FILE, SERVER_FILE, TOKEN_FILE, ServerFile
from stateward.errors import BadInput, StatewardError

WORKER_LOCK = "worker.lock"
DEMO_NAMESPACE = "demo"
"""The namespace of commands on the folder of a demo: the one with the demo's objects."""

OPEN_TO_OTHERS = 0o077
OWN_FILES = (DATABASE_FILE, TOKEN_FILE, SERVER_FILE, WORKER_LOCK)

PAGE_TOKENS = 500


class DataDirInUse(StatewardError):
    """Another process works on the data folder."""

    path: str
    pid: str
    text = (
        "the data folder {path} is used by process {pid}, which has a worker; stop that process, start "
        "this one with --no-worker, or let both share a PostgreSQL (--database)"
    )


class DataDir:
    """The files of a server, readable by their owner only."""

    def __init__(self, config: Config) -> None:
        self.path = Path(config.data)
        self._embedded = not config.database
        self._namespace = DEMO_NAMESPACE if config.demo else None

    @property
    def token_file(self) -> Path:
        """The file with the administrator's token."""
        return self.path / TOKEN_FILE

    def create(self) -> None:
        """Create the folder, if it does not exist; close one that others can enter.

        A folder that has other content is not changed but refused: it may be `/tmp`, or the home of somebody.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.stat().st_mode & OPEN_TO_OTHERS:
                status = self.path.stat()
                is_ours = any((self.path / name).exists() for name in OWN_FILES) or not any(self.path.iterdir())
                if status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX or not is_ours:
                    private = "a folder that only you can enter, because it will contain tokens and disks"
                    raise BadInput("data", str(self.path), f"{private} (chmod 700, or name a new folder)")
                self.path.chmod(0o700)
        except OSError as error:
            raise BadInput("data", str(self.path), f"a folder that can be used ({error.strerror})") from error

    @contextmanager
    def worker_lock(self) -> Iterator[None]:
        """Hold the folder's worker lock; raises if another process has a worker on the embedded database.

        The simulated clouds and the hosts of the folder belong to the process of its worker. A second worker would
        claim operations that it cannot run, and hold them until their deadlines.
        """
        lock = os.open(self.path / WORKER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise DataDirInUse(str(self.path), os.pread(lock, 20, 0).decode().strip()) from None
        else:
            os.pwrite(lock, f"{os.getpid()}\n".ljust(20).encode(), 0)
            yield
        finally:
            os.close(lock)

    async def ensure_admin_token(self, tokens: Tokens) -> str | None:
        """Issue an administrator's token if there is none; returns a warning if the token in the file is not valid."""
        if self.token_file.exists():
            text = self.token_file.read_text("ascii", errors="replace").strip()
            if await tokens.check(text) is not None:
                return None
            if await has_administrator(tokens):
                return f"the token in {self.token_file} is not valid any more; it is left as it is"
            self.token_file.unlink()
            await self._issue_admin_token(tokens)
            return None
        if self._embedded or not await has_administrator(tokens):
            await self._issue_admin_token(tokens)
        return None

    async def _issue_admin_token(self, tokens: Tokens) -> None:
        text, _ = await tokens.issue("admin", Role.ADMIN, [ANY], who="first start")
        write_private(self.token_file, text + "\n")

    def write_address(self, url: str) -> None:
        """Write the address of the server, unless the file has that of the server with the folder's worker."""
        if self._has_address_of_worker():
            return
        content = msgspec.json.encode(ServerFile(url, os.getpid(), self._namespace)).decode()
        write_private(self.path / SERVER_FILE, content)

    def _has_address_of_worker(self) -> bool:
        """Return whether the file has the address of another process, which has the folder's worker."""
        with suppress(OSError, msgspec.MsgspecError), (self.path / WORKER_LOCK).open("rb") as lock:
            try:
                flock(lock, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                worker = int(lock.read().strip() or b"0")
                address = msgspec.json.decode((self.path / SERVER_FILE).read_bytes(), type=ServerFile)
                return address.pid == worker != os.getpid()
        return False

    def remove_address(self) -> None:
        """Remove the address, unless another server has written its own; the namespace of commands stays."""
        file = self.path / SERVER_FILE
        with suppress(OSError, msgspec.MsgspecError):
            if msgspec.json.decode(file.read_bytes(), type=ServerFile).pid != os.getpid():
                return
            if self._namespace is None:
                file.unlink()
            else:
                write_private(file, msgspec.json.encode(ServerFile("", namespace=self._namespace)).decode())


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can read, if it does not exist; the caller's open reports errors."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


async def has_administrator(tokens: Tokens) -> bool:
    """Return whether a token that administers everything exists."""
    after: str | None = None
    while page := await tokens.list(after, PAGE_TOKENS):
        if any(_opens_everything(token) for token in page):
            return True
        after = f"token-{page[-1].id}"
    return False


def _opens_everything(token: TokenInfo) -> bool:
    return token.state == TokenState.ACTIVE and token.role is Role.ADMIN and ANY in token.namespaces
