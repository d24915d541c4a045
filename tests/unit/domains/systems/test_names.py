import pytest

from stateward.domains.systems.object_ids import (
    change_id,
    checked_path,
    path_of,
    pool_id,
    service_id,
    system_of,
)
from stateward.errors import BadInput


def test_ids_tell_whose_they_are() -> None:
    path = checked_path("/store/api")
    ids = [service_id("shop", path), pool_id("shop", "main"), change_id("shop", "1")]
    assert ids == ["shop:store.api", "shop~main", "shop@1"]
    assert {system_of(one) for one in ids} == {"shop"}
    assert path_of("shop:store.api") == path


@pytest.mark.parametrize("path", ["/A", "/a b", "/a.b", "/-a", "/a:b", "/" + "a" * 64, "/a" * 21])
def test_a_step_of_a_path_is_a_plain_name(path: str) -> None:
    with pytest.raises(BadInput):
        checked_path(path)
