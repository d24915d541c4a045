"""The plan of a run: who is started when, and when the run is over."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.systems.definition import JobDefinition, Service
from stateward.domains.systems.run_planner import MAX_BACKOFF_S, AttemptResult, RunStep, backoff_s, next_run_step


def job(**how: object) -> JobDefinition:
    return JobDefinition(Service(command=("work",)), **how)  # type: ignore[arg-type]


def test_as_many_start_as_may_run_at_once() -> None:
    wanted = job(completions=5, parallelism=2)
    assert next_run_step(wanted, [], [], 0.0) == RunStep(("0-0", "1-0"))
    assert next_run_step(wanted, [], ["0-0", "1-0"], 0.0) == RunStep()
    assert next_run_step(wanted, [AttemptResult("1-0", 1.0, 0)], ["0-0"], 1.0) == RunStep(("2-0",))


def test_a_failed_index_is_tried_again_after_its_back_off_and_others_go_first() -> None:
    wanted = job(completions=2, retries=3, backoff=4.0)
    failed = [AttemptResult("0-0", 10.0, 1)]
    assert next_run_step(wanted, failed, [], 10.0) == RunStep(("1-0",), due=14.0)
    done = [*failed, AttemptResult("1-0", 11.0, 0)]
    assert next_run_step(wanted, done, [], 13.9) == RunStep(due=14.0)
    assert next_run_step(wanted, done, [], 14.0) == RunStep(("0-1",))


def test_an_unknown_status_is_a_failure() -> None:
    assert next_run_step(job(), [AttemptResult("0-0", 1.0, None)], [], 2.0) == RunStep(outcome="retries")


def test_the_back_off_doubles_up_to_a_limit() -> None:
    assert [backoff_s(job(backoff=2.0), count) for count in (1, 2, 3, 4, 500)] == [2.0, 4.0, 8.0, 16.0, MAX_BACKOFF_S]


@given(
    completions=st.integers(1, 8),
    parallelism=st.integers(1, 8),
    retries=st.integers(0, 6),
    statuses=st.lists(st.sampled_from([0, 0, 1, None]), max_size=40),
    picks=st.randoms(use_true_random=False),
)
def test_every_run_ends_and_no_attempt_is_made_twice(
    completions: int, parallelism: int, retries: int, statuses: list[int | None], picks: Random
) -> None:
    wanted = job(completions=completions, parallelism=parallelism, retries=retries, backoff=1.0)
    ended: list[AttemptResult] = []
    running: list[str] = []
    made: set[str] = set()
    now = 0.0
    results = iter(statuses)
    while (step := next_run_step(wanted, ended, running, now)).outcome is None:
        assert not set(step.start) & made
        made |= set(step.start)
        running += step.start
        assert len(running) <= parallelism
        if running:
            name = running.pop(picks.randrange(len(running)))
            ended.append(AttemptResult(name, now, next(results, 0)))
            now += 0.1
        else:
            assert step.due is not None  # something is always under way, or due
            now = max(now, step.due)
    succeeded = {one.index for one in ended if one.exit_status == 0}
    failures = sum(one.exit_status != 0 for one in ended)
    assert failures <= retries + 1
    assert (step.outcome == "succeeded") == (len(succeeded) == completions)
    assert len([one for one in ended if one.exit_status == 0]) == len(succeeded)  # no index succeeds twice
