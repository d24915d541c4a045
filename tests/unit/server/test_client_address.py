from typing import Any

import pytest

from stateward.errors import BadInput
from stateward.server.auth.client_address import ClientAddresses, read_networks


def scope(address: str | None, *forwarded: str) -> Any:
    headers = [(b"x-forwarded-for", one.encode()) for one in forwarded]
    return {"client": None if address is None else (address, 1), "headers": headers}


@pytest.mark.parametrize(
    ("address", "forwarded", "found"),
    [
        ("192.0.2.1", ("9.9.9.9",), "192.0.2.1"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("9.9.9.9",), "9.9.9.9"),
        ("10.0.0.1", ("1.1.1.1, 9.9.9.9, 10.0.0.2",), "9.9.9.9"),
        ("10.0.0.1", ("1.1.1.1", "9.9.9.9"), "9.9.9.9"),
        ("10.0.0.1", ("10.0.0.3, 10.0.0.2",), "10.0.0.3"),
        ("10.0.0.1", ("9.9.9.9, nonsense",), "10.0.0.1"),
        ("::ffff:10.0.0.1", ("2001:db8::1",), "2001:db8::1"),
        (None, ("9.9.9.9",), ""),
    ],
)
def test_a_client_has_the_last_address_that_no_trusted_proxy_has(
    address: str | None, forwarded: tuple[str, ...], found: str
) -> None:
    assert ClientAddresses(read_networks("10.0.0.0/24")).address(scope(address, *forwarded)) == found


def test_without_a_trusted_proxy_no_header_counts() -> None:
    assert ClientAddresses().address(scope("10.0.0.1", "9.9.9.9")) == "10.0.0.1"


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("testclient", "testclient"),
    ],
)
def test_all_addresses_of_an_ipv6_site_are_one(address: str, site: str) -> None:
    assert ClientAddresses().network(scope(address)) == site


def test_a_setting_that_is_no_network_is_refused() -> None:
    with pytest.raises(BadInput, match="trusted_proxies"):
        read_networks("10.0.0.0/24, proxy.example")
