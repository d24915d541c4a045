"""The Python code of the README and of the pages about lifecycles and jobs runs, and prints what its last comment says.

The first block of the page about jobs stands before each of its other blocks.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.engine import Job

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(code, id=f"{page}-{number}")
    for page in ("README.md", "docs/howto/lifecycle.md")
    for number, code in enumerate(BLOCK.findall((ROOT / page).read_text()))
]
JOB_PAGE = (ROOT / "docs" / "howto" / "job.md").read_text()
SETUP, *EXAMPLES = BLOCK.findall(JOB_PAGE)
BLOCKS += [
    pytest.param(f"{SETUP}\n\n{code}", id=f"docs/howto/job.md-{number}") for number, code in enumerate(EXAMPLES, 1)
]
OF_THE_WORKER = {
    *("begin_undo", "end_after_undo", "failed_undos", "give_up_undo", "missing_undos"),
    *("pause", "pending_undos", "replay", "undo"),
}
"""What a job offers to its worker, and not to its handler."""


@pytest.mark.parametrize("code", BLOCKS)
def test_a_documented_piece_of_code_runs_and_prints_what_the_page_says(code: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    *_, last = code.rstrip().splitlines()
    assert ran.stdout.strip() == (last.removeprefix("# ") if last.startswith("# ") else "")


def test_the_page_about_jobs_has_everything_that_a_job_offers() -> None:
    offered = {name for name in (*dir(Job), *Job.__slots__) if not name.startswith("_")} - OF_THE_WORKER
    assert {name for name in offered if f"`job.{name}" not in JOB_PAGE.replace("await\njob.", "await job.")} - {
        name for name in offered if f"await job.{name}(" in JOB_PAGE.replace("await\njob.", "await job.")
    } == set()
