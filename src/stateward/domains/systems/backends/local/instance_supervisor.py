"""One instance, looked after: started, watched, started again after a crash, and ended.

Every step is written down before the next one, so that whoever comes after a crash of ours goes on from there: a
process that runs is taken over, and none is started twice.
"""

import asyncio
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from stateward.domains.systems.backends.local import health_check
from stateward.domains.systems.backends.local.instance_dir import Lodge, Order, State
from stateward.domains.systems.backends.local.launch import (
    ask_to_end,
    box_of,
    environment_of,
    find,
    folder_of,
    free_port,
    how_it_ended,
    is_alive,
    kill_all,
    last_words,
    launch,
)
from stateward.domains.systems.backends.port import Phase
from stateward.drivers.confinement import Confinement, Sandbox
from stateward.drivers.process.procfs import ProcessId, process_of

MOMENT = 0.5
"""How many seconds an instance without a check must have run to count as well."""

EAGER = 0.1
"""How many seconds pass between looks at an instance that is not yet well, at most."""

ILL = "not healthy"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
CALM = 30.0
"""After so many seconds of being well, a crash counts as the first again."""


def back_off(crashes: int) -> float:
    """Return how many seconds to wait after so many crashes in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(crashes - 1, 10))


class Ward:
    """An instance in our care."""

    def __init__(self, lodge: Lodge, order: Order, confinement: Confinement) -> None:
        self.lodge = lodge
        self._confinement = confinement
        self.order = order
        self.stamp = lodge.stamp()
        self.state = self._written = lodge.state() or State()
        self.over = False  # nothing is left of it
        self._asked = 0.0  # when it was told to end; 0: not yet
        self._termed = False
        self._failures = 0
        self._looked = 0.0
        self._look: asyncio.Task[str] | None = None
        self._errors = 0  # of ours, in a row
        self._rests_until = 0.0

    def heed(self) -> None:
        """Read the order again, if it was replaced."""
        stamp = self.lodge.stamp()
        if stamp != self.stamp:
            self.stamp, self._rests_until = stamp, 0.0
            self.order = self.lodge.order() or replace(self.order, stop=True)

    def tick(self, now: float) -> bool:
        """Do what is to be done now; tells whether something has changed."""
        if now < self._rests_until:
            return False
        before = self.state
        if self.state.launching:
            self._recover(now)
        elif self.state.process is None:
            self._without_process(now)
        elif not is_alive(self.state.process):
            self._ended(now)
        elif self.order.stop:
            self._end(now)
        else:
            self._watch(now)
        if not self.over:
            self._write()
        self._errors = 0
        return self.over or self.state != before

    def fail(self, now: float, error: Exception) -> None:
        """Take note of an error with this instance, which is left alone for a while; its process goes on if it has one.

        A start of which the end is not known stays noted as begun: the next step looks for its process.
        """
        self._errors += 1
        self._rests_until = now + back_off(self._errors)
        phase = Phase.STOPPING if self.order.stop else Phase.CRASHED
        self.state = replace(self.state, phase=phase, ready=False, why=f"{type(error).__name__}: {error}")
        with suppress(Exception):  # it may be the very error; the next step writes it again
            self._write()

    def _write(self) -> None:
        if self.state != self._written:
            self.lodge.put_state(self.state)
            self._written = self.state

    def close(self) -> None:
        """Look after it no more; it goes on."""
        if self._look is not None:
            self._look.cancel()

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _recover(self, now: float) -> None:
        """Settle a start of which nobody knows how far it came."""
        found = find(self.lodge, self.state.boot)
        self.state = replace(self.state, launching=False, process=found, since=now)
        if found is None:
            self._without_process(now)

    def _without_process(self, now: float) -> None:
        if self.order.stop:
            self._bury()
        elif now >= self.state.due:
            self._launch(now)

    def _launch(self, now: float) -> None:
        boot, port = self.state.boot + 1, self.order.port or free_port()
        phase = Phase.STARTING if not self.state.restarts else self.state.phase
        self._failures, self._looked = 0, 0.0
        try:
            box = box_of(self.lodge, self.order, self._confinement)
            # Noted before the start: whoever comes next must know that there may be a process, and whose it is.
            self.state = replace(self.state, boot=boot, port=port, launching=True, phase=phase, uid=box.uid)
            self._write()
            pid = launch(self.lodge, self.order, boot, port, box, self._confinement)
        except (OSError, ValueError) as error:  # a ValueError: no process can have such an argument
            self.state = replace(self.state, launching=False)
            self._crashed(now, str(error))
            return
        process = process_of(pid)
        self.state = replace(self.state, launching=False, process=process, since=now)
        if process is None:  # it has ended already
            self._crashed(now, self._reason(how_it_ended(pid)))

    # --- living ------------------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        check = self.order.service.health
        if check is None:
            if not self.state.ready and now - self.state.since >= MOMENT:
                self._well(now)
            return
        if self._look is not None and self._look.done():
            self._judge(now, self._look, check.failures)
        pause = check.interval if self.state.ready else min(check.interval, EAGER)
        if self._look is None and now - self._looked >= pause:
            self._looked = now
            self._look = asyncio.create_task(self._looking())

    async def _looking(self) -> str:
        check, port = self.order.service.health, self.state.port or 0
        assert check is not None
        box = Sandbox(self.lodge.folder, uid=self.state.uid)
        environment = environment_of(self.lodge, self.order, self.state.boot, port, box)
        begin = partial(self._confinement.run, box)
        return await health_check.look(check, port, environment, folder_of(self.order, box), begin)

    def _judge(self, now: float, look: "asyncio.Task[str]", most: int) -> None:
        self._look = None
        why = "the look was broken off" if look.cancelled() else look.result()
        if not why:
            self._failures = 0
            self._well(now)
        elif not self.state.ready:
            self.state = replace(self.state, why=why)
        else:
            self._failures += 1
            if self._failures >= most:
                self._kill_all(self.state.process)
                self.state = replace(self.state, ready=False, why=f"{ILL}: {why}")

    def _well(self, now: float) -> None:
        if not self.state.ready:
            self.state = replace(self.state, phase=Phase.UP, ready=True, since=now, why="")

    # --- ending ------------------------------------------------------------------------------------------------------

    def _ended(self, now: float) -> None:
        process = self.state.process
        assert process is not None
        how = how_it_ended(process.pid)
        if not self._kill_all(None):
            return  # descendants are on their way out
        if self.order.stop:
            self._bury()
            return
        self._crashed(now, self.state.why if self.state.why.startswith(ILL) else self._reason(how))

    def _reason(self, how: str) -> str:
        words = last_words(self.lodge.log)
        return f"{how}: {words}" if words else how

    def _crashed(self, now: float, why: str) -> None:
        calm = self.state.ready and now - self.state.since > CALM
        crashes = 1 if calm else self.state.crashes + 1
        self.state = replace(
            self.state,
            phase=Phase.CRASHED,
            process=None,
            ready=False,
            restarts=self.state.restarts + 1,
            crashes=crashes,
            since=now,
            due=now + back_off(crashes),
            why=why,
        )

    def _end(self, now: float) -> None:
        """Take it out of sight, then ask it to end, then kill it; each after its time."""
        process, service = self.state.process, self.order.service
        assert process is not None
        if self.state.phase is not Phase.STOPPING or not self._asked:
            self._asked = now
            self.state = replace(self.state, phase=Phase.STOPPING, ready=False)
            return
        waited = now - self._asked
        if waited > service.drain + service.grace:
            self._kill_all(process)
        elif waited > service.drain and not self._termed:
            self._termed = True
            ask_to_end(process)

    def _kill_all(self, process: ProcessId | None) -> bool:
        if self.state.uid is not None:
            self._confinement.kill(self.lodge.folder, self.state.uid)
        return kill_all(self.lodge, self.state.boot, process)

    def _bury(self) -> None:
        self.close()
        if self.state.uid is not None:
            self._confinement.end(self.lodge.folder, self.state.uid)
        with suppress(OSError):
            self.lodge.remove()
        self.over = True
