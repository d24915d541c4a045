import pytest

from stateward.domains.ovc.lifecycle import ACCOUNT, VM
from stateward.engine import Handler, Kind, Rules
from stateward.engine.kinds import Kinds
from stateward.engine.privacy import Privacy
from stateward.errors import BadInput, UnknownName


def test_two_kinds_of_one_name_are_a_mistake() -> None:
    with pytest.raises(BadInput, match=r"ovc\.vm"):
        Kinds([Kind(VM), Kind(ACCOUNT), Kind(VM)])


def test_an_unknown_kind_is_told_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"'ovc\.vn'; did you mean 'ovc\.vm'\? Known: ovc\.vm, ovc\.account"):
        Kinds([Kind(VM), Kind(ACCOUNT)])["ovc.vn"]


def test_a_kind_with_other_handlers_is_the_same_in_all_else() -> None:
    async def run(_: object) -> None:
        """Do nothing."""

    privacy = Privacy(texts=True)
    kind = Kind(VM, rules=Rules(cancels=False, reserved_labels=("name",)), privacy=privacy)
    other = kind.with_handlers({"deploy": Handler(run)})
    assert (kind.handlers, list(other.handlers)) == ({}, ["deploy"])
    assert (other.name, other.rules, other.privacy) == ("ovc.vm", kind.rules, privacy)
