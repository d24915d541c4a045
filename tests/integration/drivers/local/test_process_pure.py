"""What the process driver works out without a process: lines of the kernel's, names of folders, sizes."""

from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers.process.machine_dir import PLAIN_KEY, folder_name
from stateward.drivers.process.shell_machine import MachineSize, size_of
from stateward.procfs import parse_stat

NUMBERS = st.integers(1, 2**31)


@given(pid=NUMBERS, name=st.text(max_size=15), parent=NUMBERS, group=NUMBERS, session=NUMBERS, started=NUMBERS)
def test_a_line_is_read_whatever_the_program_is_called(
    pid: int, name: str, parent: int, group: int, session: int, started: int
) -> None:
    filling = " ".join(["0"] * 15)
    stat = parse_stat(f"{pid} ({name}) S {parent} {group} {session} {filling} {started} 1 2 3\n")
    assert (stat.pid, stat.state, stat.parent, stat.group, stat.session) == (pid, "S", parent, group, session)
    assert stat.started == started


@given(one=st.text(), other=st.text())
def test_two_keys_never_share_a_folder(one: str, other: str) -> None:
    assert (folder_name(one) == folder_name(other)) == (one == other)


@given(key=st.text())
def test_no_key_leads_out_of_the_folder(key: str) -> None:
    name = folder_name(key)
    assert PLAIN_KEY.fullmatch(name.removeprefix("="))
    assert len(name) < 255


@given(processors=st.integers(1, 999), memory=st.integers(1, 9_999_999))
def test_a_size_says_processors_and_memory(processors: int, memory: int) -> None:
    assert size_of(f"{processors}c{memory}m") == MachineSize(processors, memory)
    assert size_of(f"{processors}c{memory}g") == MachineSize(processors, memory * 1024)


@given(st.text().filter(lambda text: "c" not in text and text not in ("tiny", "small", "medium", "large")))
def test_anything_else_is_no_size(text: str) -> None:
    assert size_of(text) is None
