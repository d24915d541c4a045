"""Run the test suite as another user: `python -m tools.as_user [--user nobody] [PYTEST ARGUMENT...]`, as root.

What passes for root may fail for others, who can neither write everywhere nor install packages. So the last commit is
cloned into a temporary folder, with a copy of the environments, and all of it is given to that user, who runs
`make test` there. Their Python must be one that the user can run: where it belongs to root alone, the system's is used.

Tests write only to their temporary folder. This user owns nothing else, so what it owns after the run was written by a
test, and the run fails.
"""

import argparse
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = (".venv", "node_modules")
PLACES = ("bin/*", "*/bin/*", "lib/python3*/site-packages/*.pth", "*/lib/python3*/site-packages/*.pth", "**/pyvenv.cfg")
"""Where an environment names its own folder."""
WRITABLE = ("/", "/dev/shm", "/home", "/run", "/run/lock", "/tmp", "/var/lib", "/var/tmp")
"""Where a user can write on some host."""


def main() -> None:
    """Run the suite; exits as it does, or with an error if it left files behind."""
    parser = argparse.ArgumentParser(prog="python -m tools.as_user", description=__doc__)
    parser.add_argument("--user", default="nobody")
    options, arguments = parser.parse_known_args()
    if os.geteuid() != 0:
        sys.exit("Only root can run the tests as another user: run this with sudo, or `make test` as that user.")
    account = pwd.getpwnam(options.user)
    with tempfile.TemporaryDirectory(prefix="stateward-as-user-", dir="/var/tmp") as folder:
        (Path(folder) / ".cache").mkdir()  # uv and OpenStack's programs keep things there from run to run
        copy = Path(folder) / "stateward"
        copy_checkout(copy, account)
        before = written(copy, account)
        environ = {"HOME": folder, "USER": account.pw_name, "LOGNAME": account.pw_name, "LANG": "C.UTF-8"}
        environ["PATH"] = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        command = ["make", "--no-print-directory", "test", f"ARGS={shlex.join(arguments)}"]
        done = subprocess.run(
            command, cwd=copy, env=environ, user=account.pw_uid, group=account.pw_gid, extra_groups=[]
        )
        left = sorted(written(copy, account) - before)
    for one in left:
        print(f"written by a test, and left behind: {one}", file=sys.stderr)
    sys.exit(done.returncode or int(bool(left)))


def written(copy: Path, account: pwd.struct_passwd) -> set[str]:
    """Return what a user has on this host, in its home folder, and in the checkout besides what git ignores."""
    status = ("git", "-c", "safe.directory=*", "-C", str(copy), "status", "--porcelain")
    found = set(subprocess.run(status, check=True, capture_output=True, text=True).stdout.splitlines())
    found |= {str(one) for one in copy.parent.iterdir()}
    for one in (one for place in WRITABLE for one in Path(place).glob("*")):
        with suppress(OSError):  # it has been removed meanwhile
            if one.lstat().st_uid == account.pw_uid:
                found.add(str(one))
    return found


def copy_checkout(copy: Path, account: pwd.struct_passwd) -> None:
    """Make a copy of the last commit and of the environments that a user owns."""
    _run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(copy))
    for name in COPIED:
        if (ROOT / name).exists():
            _run("cp", "--archive", "--reflink=auto", str(ROOT / name), str(copy))
    relocate(copy / ".venv", ROOT, copy)
    _use_python_of(copy / ".venv", account)
    for stamp in (copy / ".venv").glob(".*"):
        stamp.touch()  # else make would find it older than the clone's files, and install everything again
    _run("chown", "--recursive", f"{account.pw_uid}:{account.pw_gid}", str(copy.parent))


def relocate(environment: Path, old: Path, new: Path) -> None:
    """Let the programs and the settings of an environment name its new folder."""
    named = re.compile(re.escape(str(old).encode()) + rb"(?=[/\s]|$)")
    for file in {
        file for place in PLACES for file in environment.glob(place) if file.is_file() and not file.is_symlink()
    }:
        content = file.read_bytes()
        if b"\0" not in content and named.search(content):
            file.write_bytes(named.sub(str(new).encode(), content))


def _use_python_of(environment: Path, account: pwd.struct_passwd) -> None:
    """Let an environment run a Python that the user can run."""
    as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    python = (environment / "bin" / "python").resolve()
    try:
        subprocess.run([str(python), "-c", ""], check=True, cwd="/", **as_user)  # type: ignore[call-overload]
    except (PermissionError, subprocess.CalledProcessError):
        others = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin")
        if others is None:
            sys.exit(f"{account.pw_name} cannot run {python}, and the system has no Python 3.{sys.version_info.minor}.")
        for link in [*environment.glob("bin/python*"), *environment.glob("*/bin/python*")]:
            if link.is_symlink() and link.readlink().is_absolute() and link.resolve() == python:
                link.unlink()
                link.symlink_to(others)
        for settings in environment.glob("**/pyvenv.cfg"):
            text = settings.read_text("utf-8").replace(str(python.parent), str(Path(others).parent))
            settings.write_text(text, "utf-8")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
