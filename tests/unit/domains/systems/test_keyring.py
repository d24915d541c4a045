"""The keys of secrets: what they encrypt, what they refuse, and where they come from."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.systems.errors import NoSecretsKey, SecretUnreadable
from stateward.domains.systems.secrets import keyring
from stateward.domains.systems.secrets.keyring import (
    KEY_FILE,
    KEYS_VARIABLE,
    KeyRing,
    SealedValue,
    SealingKey,
    take_environment_keys,
)
from stateward.errors import BadInput

OLD, NEW = "11" * 32, "22" * 32
KEY = SealingKey(bytes.fromhex(OLD))


def ring(path: Path, *keys: str) -> KeyRing:
    """Return the keys of a file that has these lines."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text("\n".join(keys))
    return KeyRing(None, str(path))


@given(st.text(min_size=1), st.text(), st.text())
def test_what_was_encrypted_is_decrypted(value: str, ns: str, name: str) -> None:
    sealed = KEY.seal(ns, name, value)
    assert KEY.unseal(ns, name, sealed) == value
    assert sealed == KEY.seal(ns, name, value)  # so that a repeated request is the same request


@pytest.mark.parametrize(("ns", "name"), [("b", "db"), ("a", "other"), ("adb", "")])
def test_a_value_is_bound_to_its_namespace_and_its_name(ns: str, name: str) -> None:
    with pytest.raises(SecretUnreadable, match="not one that this key has encrypted for it"):
        KEY.unseal(ns, name, KEY.seal("a", "db", "hunter2"))


@given(st.text(max_size=100))
def test_no_other_text_is_taken_for_an_encrypted_one(text: str) -> None:
    with pytest.raises(SecretUnreadable):
        KEY.unseal("a", "db", SealedValue(KEY.id, {"value": text}))


def test_the_first_key_encrypts_and_all_decrypt(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    before = ring(file, OLD).seal("a", "db", "hunter2")
    both = ring(file, NEW, "", f"{OLD}  # of last year")
    assert both.unseal("a", "db", before) == "hunter2"
    after = both.seal("a", "db", "hunter2")
    assert (after.key, before.key) == (SealingKey(bytes.fromhex(NEW)).id, KEY.id)
    assert ring(file, NEW).unseal("a", "db", after) == "hunter2"
    with pytest.raises(SecretUnreadable, match=f"encrypted with key {before.key}, and .* has {after.key}"):
        ring(file, NEW).unseal("a", "db", before)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    keys = ring(file, OLD)
    assert keys.first == KEY.id
    ring(file, NEW, OLD)
    assert keys.first == SealingKey(bytes.fromhex(NEW)).id
    file.unlink()
    with pytest.raises(NoSecretsKey, match="cannot be read"):
        keys.seal("a", "db", "hunter2")


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "has no key"), ("# none\n", "has no key"), (f"{OLD}\nhunter2", "line 2 of .* is not a key"), (OLD[:-1], "1")],
)
def test_a_file_without_keys_is_refused_and_its_lines_are_not_told(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(NoSecretsKey, match=why) as refused:
        _ = ring(tmp_path / "keys", text).first
    assert "hunter2" not in str(refused.value)
    assert "systems_secrets_key_file" in str(refused.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    keys = ring(tmp_path / "keys", OLD)
    (tmp_path / "keys").chmod(0o640)
    with pytest.raises(NoSecretsKey, match="can be read by others"):
        keys.seal("a", "db", "hunter2")


def test_a_key_is_created_with_the_embedded_database_only(tmp_path: Path) -> None:
    sealed = KeyRing(tmp_path).seal("a", "db", "hunter2")
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert KeyRing(tmp_path).unseal("a", "db", sealed) == "hunter2"
    for keys in (KeyRing(tmp_path, is_embedded=False), KeyRing()):
        with pytest.raises(NoSecretsKey, match="this deployment has no key"):
            keys.seal("a", "db", "hunter2")


def test_a_missing_file_is_created_for_the_first_secret_only(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    with pytest.raises(NoSecretsKey):
        _ = ring.first
    sealed = ring.seal("ns", "a", "value")
    (tmp_path / KEY_FILE).rename(tmp_path / "away")  # somebody replaces it
    with pytest.raises(NoSecretsKey, match="cannot be read"):
        ring.seal("ns", "b", "value")
    (tmp_path / "away").rename(tmp_path / KEY_FILE)
    assert ring.unseal("ns", "a", sealed) == "value"


def test_the_environment_has_keys_for_one_process_and_is_rid_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(keyring, "_TAKEN", [])
    assert take_environment_keys() == ()
    monkeypatch.setenv(KEYS_VARIABLE, f"{NEW}, {OLD}\n")
    keys = KeyRing(tmp_path, given=take_environment_keys())
    assert KEYS_VARIABLE not in os.environ
    assert keys.unseal("a", "db", KEY.seal("a", "db", "hunter2")) == "hunter2"
    assert keys.first == SealingKey(bytes.fromhex(NEW)).id == take_environment_keys()[0].id
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="empty where the environment has"):
        take_environment_keys("keys.txt")
    for wrong in ("", "hunter2", f"{OLD}{NEW}"):
        monkeypatch.setenv(KEYS_VARIABLE, wrong)
        with pytest.raises(BadInput, match="64 hexadecimal digits") as refused:
            take_environment_keys()
        assert not wrong or wrong not in str(refused.value)


def test_a_value_is_not_in_its_representation() -> None:
    assert "hunter2" not in f"{KEY.unseal('a', 'db', KEY.seal('a', 'db', 'hunter2'))!r}"
