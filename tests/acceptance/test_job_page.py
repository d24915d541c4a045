"""The page about jobs is complete; `test_documented_commands.py` runs its examples."""

from pathlib import Path

from stateward.engine import Job

JOB_PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "job.md").read_text()
OF_THE_WORKER = {
    *("begin_undo", "call_handler", "calls", "end_after_undo", "failed_undos", "finish_undo", "give_up_undo"),
    *("interrupted_steps", "mask_result", "missing_undos", "note_attempt", "pause", "pending_undos", "replay"),
    *("steps_with_calls", "task", "undo"),
}
"""What a job offers to its worker, and not to its handler."""


def test_the_page_about_jobs_has_everything_that_a_job_offers() -> None:
    offered = {name for name in (*dir(Job), *Job.__slots__) if not name.startswith("_")} - OF_THE_WORKER
    assert {name for name in offered if f"`job.{name}" not in JOB_PAGE.replace("await\njob.", "await job.")} - {
        name for name in offered if f"await job.{name}(" in JOB_PAGE.replace("await\njob.", "await job.")
    } == set()
