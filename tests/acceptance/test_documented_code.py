"""The Python code of the README and of the page about lifecycles runs, and prints what its last comment says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(code, id=f"{page}-{number}")
    for page in ("README.md", "docs/howto/lifecycle.md")
    for number, code in enumerate(BLOCK.findall((ROOT / page).read_text()))
]


@pytest.mark.parametrize("code", BLOCKS)
def test_a_documented_piece_of_code_runs_and_prints_what_the_page_says(code: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    *_, last = code.rstrip().splitlines()
    assert ran.stdout.strip() == (last.removeprefix("# ") if last.startswith("# ") else "")
