"""Audit: `python -m tools.audit`. Known faults of what we depend on, and secrets in the tree and in all of its history.

The first needs pip-audit and a way to its database of known faults; where there is none, that is said, and fails. The
second needs git. What looks like a secret and is none (samples in tests and documentation) is named below.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("run", "dev", "bench", "docs", "nova", "tempest")

SECRETS = {  # without a leading \b: the search for a pattern that starts with a letter takes a thirtieth of the time
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\\n]*[A-Za-z0-9+/=]{40}"),
    "a key of AWS": re.compile(r"A(?:KIA|SIA)[0-9A-Z]{16}\b"),
    "a token of ours": re.compile(r"sw_[0-9a-f]{12}_[A-Za-z0-9_-]{20,}"),
    "a token of a forge": re.compile(r"(?:gh[pousr]_[A-Za-z0-9]{36}|glpat-[A-Za-z0-9_-]{20})"),
    "a token of a registry": re.compile(r"(?:pypi-[A-Za-z0-9_-]{40,}|npm_[A-Za-z0-9]{36})"),
    "a token of a web service": re.compile(r"xox[abpr]-[A-Za-z0-9-]{10,}|AIza[0-9A-Za-z_-]{35}"),
    "a signed token": re.compile(r"eyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}"),
    "a password in an address": re.compile(r"://[\w.-]+:(?P<word>[^\s@/'\"{}<>*$]{3,})@"),
}

SAMPLES = re.compile(
    r"sw_0123456789ab_|secret|password|hunter2|pass(?:word)?\b|\bpw\b|example|wrong|EXAMPLE|simulated", re.IGNORECASE
)
"""What stands in a line that shows a sample."""


def found(text: str) -> Iterator[tuple[str, str]]:
    """Yield what looks like a secret in a text: what it is, and the line that it is in."""
    for what, pattern in SECRETS.items():
        for match in pattern.finditer(text):  # of the whole text: line by line takes ten times as long
            if not SAMPLES.search(match[0]):
                start = text.rfind("\n", 0, match.start()) + 1
                yield what, text[start:].partition("\n")[0].strip()


def in_tree() -> Iterator[str]:
    """Yield where a tracked file has something that looks like a secret; never what."""
    for name in _git("ls-files").splitlines():
        file = ROOT / name
        if file.suffix not in (".png", ".lock") and file.is_file():
            yield from (f"{name}: {what}" for what, _ in found(file.read_text("utf-8", "replace")))


def in_history() -> Iterator[str]:
    """Yield which commit has added something that looks like a secret."""
    commit = ""
    for line in _git("log", "--all", "-p", "--no-color", "--unified=0").splitlines():
        if line.startswith("commit "):
            commit = line.split()[1][:9]
        elif line.startswith("+"):
            yield from (f"{commit}: {what}" for what, _ in found(line))


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def dependencies() -> Iterator[str]:
    """Yield the locks with packages that have known faults, or that could not be looked up."""
    for name in LOCKS:
        lock = f"requirements/{name}.lock"
        words = [sys.executable, "-m", "pip_audit", "--strict", "--no-deps", "--disable-pip", "-r", lock]
        if subprocess.run(words, cwd=ROOT, check=False).returncode:
            yield f"{lock}: see above"


def main() -> None:
    """Audit, and fail if there is anything."""
    faults: Iterable[str] = dict.fromkeys([*in_tree(), *in_history(), *dependencies()])
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(1)
    print("No known faults, no secrets.")


if __name__ == "__main__":
    main()
