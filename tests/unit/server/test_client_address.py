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


@pytest.mark.parametrize(
    ("scheme", "address", "headers", "is_private"),
    [
        ("wss", "192.0.2.1", {}, True),
        ("wss", "192.0.2.1", {"x-forwarded-proto": "https"}, False),  # nobody has named this proxy
        ("wss", "10.0.0.1", {}, True),
        ("wss", "10.0.0.1", {"x-forwarded-proto": "https"}, True),
        ("wss", "10.0.0.1", {"x-forwarded-proto": "http"}, False),
        ("wss", "10.0.0.1", {"x-forwarded-proto": "https, http"}, False),  # the first one may be of a client
        ("ws", "192.0.2.1", {}, False),
        ("ws", "10.0.0.1", {"x-forwarded-proto": "https"}, False),  # between the proxy and this host
        ("ws", "127.0.0.1", {}, True),
        ("ws", "127.0.0.1", {"x-forwarded-for": "192.0.2.1"}, False),
        ("ws", "127.0.0.1", {"x-forwarded-proto": "https"}, False),
        ("ws", None, {}, False),
    ],
)
def test_a_connection_is_private_over_tls_and_from_this_host_unless_a_proxy_passes_it_on(
    scheme: str, address: str | None, headers: dict[str, str], is_private: bool
) -> None:
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    connection: Any = {**scope(address), "scheme": scheme, "headers": given}
    assert ClientAddresses(read_networks("10.0.0.0/24")).is_private(connection) is is_private


def test_a_trusted_proxy_on_this_host_says_whether_its_clients_use_tls() -> None:
    clients = ClientAddresses(read_networks("127.0.0.1"))
    for headers, is_private in (([], False), ([(b"x-forwarded-proto", b"https")], True)):
        connection: Any = {**scope("127.0.0.1"), "scheme": "ws", "headers": headers}
        assert clients.is_private(connection) is is_private
