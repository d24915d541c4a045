"""Confinement: a program that we start on this host has nothing of ours.

The machines of the process driver, the services of local systems and the apps of edge agents are programs of others. A
program that ran as we do could read our data folder, our tokens and our environment, and could end us.

Where we are root a program gets a user of its own, no capabilities, and a mount namespace in which its folder is at one
fixed place and our folders are covered. Elsewhere it runs as our user, and Landlock leaves it the system's programs and
its own folders. Both are set up in a thread that then starts the program, so that starting one stays cheap: no second
interpreter is started, and nothing of ours is copied.

A program that is to be confined and cannot be is not started.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from stateward.drivers.confinement import landlock, seccomp, syscalls
from stateward.drivers.confinement.uids import UidClaims, uid_range

T = TypeVar("T")

DEFAULT_UIDS = "70000-79999"
"""The users of programs, where nothing else is set: above those of accounts, below those of containers."""

RUN = Path("/run/stateward")
HOME, EMPTY = RUN / "home", RUN / "empty"
"""Where a program that has a mount namespace finds its own folder; and what covers those of ours."""

PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where programs find programs. Ours may name folders that they cannot read, or that somebody else can write to."""

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - they are covered
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sys", sys.prefix),
    sys.base_prefix,
    *(f"/etc/{name}" for name in (
        "alternatives", "ca-certificates", "gai.conf", "group", "host.conf", "hosts", "inputrc", "ld.so.cache",
        "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "nsswitch.conf", "os-release",
        "passwd", "profile", "protocols", "resolv.conf", "services", "shells", "ssl", "terminfo", "timezone",
    )),
    "/run/systemd/resolve", "/run/resolvconf",
)  # fmt: skip
"""What a program may read that runs as our user. Not all of /etc, for our own settings may be there."""

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"))


class Sandbox(Struct, frozen=True):
    """What a program gets: a folder, what it may change there, where it begins, and its user if that is its own."""

    folder: Path
    writable: tuple[str, ...] = ("work", "tmp")
    work_dir: str = "work"
    uid: int | None = None

    @property
    def home(self) -> Path:
        """The folder as the program sees it."""
        return self.folder if self.uid is None else HOME

    def environment(self) -> Mapping[str, str]:
        """Return what every program finds in its environment: of ours only the language and the time zone."""
        passed = {name: os.environ[name] for name in ("LANG", "TZ") if name in os.environ}
        own = {"PATH": PATH, "HOME": str(self.home / self.work_dir), "TMPDIR": str(self.home / "tmp")}
        return passed | own


class ConfinementFailed(PermissionError):
    """A program cannot be confined here, and so is not started."""

    def __init__(self, why: object) -> None:
        super().__init__(f"a program of this host cannot be confined: {why} (setting confinement)")


class Confinement:
    """Starts programs that have nothing of ours; `hidden` are our folders and files, `readable` what they may read."""

    def __init__(
        self,
        hidden: Sequence[Path] = (),
        readable: Sequence[Path] = (),
        uids: str = DEFAULT_UIDS,
        *,
        required: bool = True,
    ) -> None:
        self._hidden, self._readable, self._required = tuple(hidden), tuple(readable), required
        self._uids = UidClaims(uid_range(uids))

    def hiding(self, *paths: Path) -> "Confinement":
        """Return the same, that hides further paths."""
        other = Confinement((*self._hidden, *paths), self._readable, required=self._required)
        other._uids = self._uids
        return other

    def create_sandbox(self, folder: Path, changes: tuple[str, ...] = ("work", "tmp")) -> Sandbox:
        """Lay out a program's folder, and give it a user of its own where we are root."""
        for name in ("work", "tmp"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        if not self._required or not _is_root():
            return Sandbox(folder, changes)
        try:
            for path in (RUN, HOME, EMPTY):
                path.mkdir(exist_ok=True)
                path.chmod(0o755)  # whatever our own mask is
            uid = self._uids.claim(folder)
        except OSError as error:
            raise ConfinementFailed(error) from error
        folder.chmod(0o711)
        for name in changes:
            _give(folder / name, uid)
        return Sandbox(folder, changes, uid=uid)

    def run(self, box: Sandbox, start: Callable[[], T]) -> T:
        """Call a function that starts a program, in a thread that is confined."""
        if not self._required:
            return start()

        def confined() -> T:
            try:
                self._enter(box)
            except OSError as error:
                raise ConfinementFailed(error) from error
            return start()

        return syscalls.run_in_new_thread(confined, "starts a program")

    def end(self, folder: Path, uid: int) -> None:
        """Kill everything that runs as a program's own user, wherever it has gone to, and give the user back."""
        self._uids.release(uid, folder)

    def kill(self, folder: Path, uid: int) -> None:
        """Kill everything that runs as a program's own user; the user stays its own."""
        self._uids.kill_all_of(uid, folder)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _enter(self, box: Sandbox) -> None:
        if box.uid is None:
            self._enter_as_own_user(box)
        else:
            self._enter_as(box, box.uid)

    def _enter_as(self, box: Sandbox, uid: int) -> None:
        """Leave our mounts, our user and our capabilities behind."""
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
        os.umask(0o022)  # of this thread alone, as its mounts are
        with ExitStack() as handles:  # this thread shares its open files with all others
            readable = [
                (path, handles.enter_context(syscalls.open_handle(path, os.O_PATH)))
                for path in self._readable
                if path.is_dir()
            ]
            _bind(box.folder, HOME)
            for path in self._hidden:
                if path.exists():
                    _bind(EMPTY if path.is_dir() else Path(os.devnull), path)
            for name in TEMPORARY:
                if Path(name).is_dir():
                    _bind(HOME / "tmp", Path(name))
            for path, handle in readable:
                _expose(path, handle, uid)
        syscalls.mount(
            "proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC, "hidepid=2"
        )
        os.chdir(box.home / box.work_dir)
        syscalls.drop_bounding_set()
        syscalls.become(uid)
        syscalls.clear_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if landlock.version():
            everything = landlock.every_right()
            own = [(box.home / name, everything) for name in box.writable]
            temporary = [(Path(name), everything) for name in TEMPORARY]
            devices = [(Path(name), landlock.OF_FILES) for name in DEVICES]
            landlock.restrict([(Path("/"), landlock.READ), *own, *temporary, *devices])

    def _enter_as_own_user(self, box: Sandbox) -> None:
        """Keep our user, and leave what it may do behind."""
        if not landlock.version():
            raise OSError("the server is not root, and the kernel has no Landlock")
        syscalls.unshare(syscalls.CLONE_FS)
        os.chdir(box.home / box.work_dir)
        syscalls.drop_bounding_set()
        syscalls.clear_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        system = landlock.without((Path(name) for name in SYSTEM), self._hidden)
        readable = landlock.without(self._readable, self._hidden)
        rules = [(path, landlock.READ) for path in (*system, *readable)]
        rules += [(Path(name), landlock.OF_FILES | landlock.READ_DIR) for name in DEVICES]
        landlock.restrict([*rules, *((box.folder / name, landlock.every_right()) for name in box.writable)])
        seccomp.install()


def seal_process() -> None:
    """Keep processes of our own user from our environment and memory in /proc, and from tracing us."""
    with suppress(OSError):
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def _is_root() -> bool:
    return os.geteuid() == 0 and syscalls.has_capability(syscalls.CAP_SYS_ADMIN)


def _bind(source: Path, target: Path) -> None:
    syscalls.mount(str(source), str(target), None, syscalls.MS_BIND | syscalls.MS_REC)


def _expose(path: Path, handle: int, uid: int) -> None:
    """Let a user reach a folder at its own place: folders above it that are closed to the user are covered."""
    for above in reversed(path.parents):
        if not above.exists():
            break
        found = above.stat()
        if found.st_uid != uid and not found.st_mode & 0o001:
            syscalls.mount("none", str(above), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=64k")
    if not path.exists() or not os.path.samestat(path.stat(), os.fstat(handle)):
        path.mkdir(parents=True, exist_ok=True)
        _bind(Path(f"/proc/self/fd/{handle}"), path)


def _give(path: Path, uid: int) -> None:
    """Give a file or a folder to a user, with all that is in it if it was another's."""
    found = os.lstat(path)
    if found.st_uid == uid:
        return
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.chown(Path(folder) / name, uid, uid, follow_symlinks=False)
    os.chown(path, uid, uid, follow_symlinks=False)
