import subprocess
import sys

PROGRAM = """
import gc
from stateward.server.run import tune_garbage_collector

class Ring:
    gone = 0
    def __init__(self): self.me = self
    def __del__(self): Ring.gone += 1

before = Ring()
tune_garbage_collector()
assert len(gc.get_objects()) < 1_000 < gc.get_freeze_count()
for _ in range(30_000): Ring()
assert 10_000 < Ring.gone < 30_000
"""


def test_what_was_there_is_left_alone_and_what_comes_is_still_collected() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)
