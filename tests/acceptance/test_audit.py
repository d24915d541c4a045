"""The tree has no secrets in it, and the audit would find one."""

import pytest

from tools import audit

KEYS = {
    "a key of AWS": "AKIA" + "Q7ZK2M5N8P1R4T6V",
    "a token of ours": "sw_" + "c0ffee" * 2 + "_" + "Zm9vYmFy" * 5,
    "a token of a forge": "ghp_" + "a1B2c3" * 6,
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----" + "MIIEpAIBAAKCAQEA" * 4,
    "a password in an address": "postgresql://" + "admin:x7Kq9" + "@db.internal/prod",
}


@pytest.mark.parametrize("what", KEYS)
def test_a_secret_is_found(what: str) -> None:
    assert [found for found, _ in audit.found(f"before = 1\nvalue = '{KEYS[what]}'\n")] == [what]


def test_what_shows_a_sample_is_none() -> None:
    assert list(audit.found("url = 'postgresql://ann:password@db/prod'")) == []


def test_the_tree_has_no_secrets() -> None:
    assert list(audit.in_tree()) == []
