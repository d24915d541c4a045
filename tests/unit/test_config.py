from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from stateward.config import (
    NAMES,
    Config,
    Source,
    about,
    describe,
    hidden_paths,
    known_settings,
    load,
    masked,
    value_of,
)
from stateward.domains.mci.settings import MciSettings
from stateward.domains.systems.settings import SystemsSettings
from stateward.errors import BadInput, UnknownName


def written(folder: Path, text: str) -> Path:
    file = folder / "stateward.toml"
    file.write_text(text)
    return file


def test_without_anything_said_the_defaults_are_in_force() -> None:
    loaded = load({}, {}, None)
    assert loaded.config == Config()
    assert set(loaded.sources.values()) == {Source.DEFAULT}


def test_a_flag_goes_before_the_environment_before_the_file_before_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, 'port = 1\nhost = "file"\ndata = "file"')
    loaded = load({"port": 3, "host": None}, {"STATEWARD_PORT": "2", "STATEWARD_HOST": "environment"}, file)
    assert (loaded.config.port, loaded.config.host, loaded.config.data) == (3, "environment", "file")
    assert [loaded.sources[name] for name in ("port", "host", "data", "slots")] == [
        Source.FLAG,
        Source.ENVIRONMENT,
        Source.FILE,
        Source.DEFAULT,
    ]


def test_a_flag_that_is_false_was_given_all_the_same() -> None:
    assert load({"worker": False}, {"STATEWARD_WORKER": "true"}, None).config.worker is False


@pytest.mark.parametrize(("text", "value"), [("true", True), ("FALSE", False), ("0", False), ("1", True)])
def test_the_environment_says_yes_and_no_in_words_or_digits(text: str, value: bool) -> None:
    assert load({}, {"STATEWARD_DEMO": text}, None).config.demo is value


def test_a_number_as_a_host_stays_text() -> None:
    assert load({}, {"STATEWARD_HOST": "8"}, None).config.host == "8"


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("port", "many", "a whole number of at least 0 and at most 65535"),
        ("port", "70000", "a whole number of at least 0 and at most 65535"),
        ("slots", "0", "a whole number of at least 1"),
        ("lease", "inf", "a number above 0 and at most 86400"),
        ("lease", "nan", "a number above 0 and at most 86400"),
        ("worker", "no", "true or false"),
        ("log_format", "xml", "one of json, text"),
    ],
)
def test_a_bad_value_names_the_setting_where_it_came_from_and_what_would_do(name: str, text: str, allowed: str) -> None:
    with pytest.raises(BadInput) as refused:
        load({}, {f"STATEWARD_{name.upper()}": text}, None)
    assert (refused.value.field, refused.value.value, refused.value.allowed) == (f"{name} (environment)", text, allowed)


def test_a_file_is_read_strictly(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"port \(file\)"):
        load({}, {}, written(tmp_path, 'port = "8420"'))


def test_a_whole_number_is_a_number_of_seconds_too(tmp_path: Path) -> None:
    assert load({}, {}, written(tmp_path, "lease = 5")).config.lease == 5.0


def test_a_misspelt_setting_in_the_file_is_refused_and_the_right_one_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'port'"):
        load({}, {}, written(tmp_path, "prot = 1"))


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(UnknownName, match="setting"):
        load({"prot": 1}, {}, None)


def test_other_variables_of_the_environment_do_not_matter() -> None:
    assert load({}, {"STATEWARD_SERVER": "http://x", "PORT": "1"}, None).config == Config()


@pytest.mark.parametrize("text", ["port =", "port = 1\nport = 2", "= 3"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="TOML"):
        load({}, {}, written(tmp_path, text))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bytes.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="TOML"):
        load({}, {}, file)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.toml.*No such file"):
        load({}, {}, tmp_path / "nowhere.toml")


@pytest.mark.parametrize(("given_one", "missing"), [("tls_cert", "tls_key"), ("tls_key", "tls_cert")])
def test_a_certificate_without_its_key_is_refused(given_one: str, missing: str) -> None:
    with pytest.raises(BadInput) as refused:
        load({given_one: "file.pem"}, {}, None)
    assert refused.value.field == missing


def test_the_store_is_in_the_data_folder_unless_a_database_is_named() -> None:
    assert load({"data": "d"}, {}, None).config.store_url == str(Path("d") / "stateward.db")
    assert load({"database": "postgresql://x"}, {}, None).config.store_url == "postgresql://x"


def test_every_setting_is_described() -> None:
    described = describe()
    assert [name for name, _, _ in described] == list(NAMES)
    assert all(meaning for _, _, meaning in described)
    assert {name: default for name, default, _ in described} == {name: getattr(Config(), name) for name in NAMES}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:se@c/r:et@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://:secret@host/db", "postgresql://:***@host/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?user=me&password=secret&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("host=h password=secret dbname=d", "host=h password=*** dbname=d"),
        ("stateward-data/stateward.db", "stateward-data/stateward.db"),
        ("cannot reach postgresql://me:secret@host/db now", "cannot reach postgresql://me:***@host/db now"),
    ],
)
def test_passwords_of_database_urls_are_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


SECRET = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6).map(lambda text: f"Q{text}Q")


@given(SECRET, st.sampled_from(["postgresql", "postgres"]))
def test_no_password_survives_the_mask(secret: str, scheme: str) -> None:
    assert secret not in masked(f"{scheme}://me:{secret}@host/db")


@given(SECRET)
def test_masking_twice_changes_nothing_more(secret: str) -> None:
    once = masked(f"postgresql://me:{secret}@host/db?password={secret}")
    assert masked(once) == once


@pytest.mark.parametrize(
    ("given_ones", "named"),
    [
        ({"pooler": True}, "pooler"),
        ({"pooler": True, "database": "sqlite:///x"}, "pooler"),
        ({"database": "postgresql://a/b", "direct_url": "postgresql://a/b"}, "direct_url"),
        ({"database": "postgresql://a/b", "pooler": True, "direct_url": "elsewhere"}, "direct_url"),
    ],
)
def test_a_pooler_stands_before_postgresql_and_a_direct_url_leads_past_it(
    given_ones: dict[str, object], named: str
) -> None:
    with pytest.raises(BadInput) as raised:
        load(given_ones, {}, None)
    assert raised.value.field == named


def test_the_url_of_a_server_is_one_of_http() -> None:
    with pytest.raises(BadInput, match=r"server_url: .* must be a URL such as https"):
        load({"server_url": "10.0.0.5:8420"}, {}, None)
    assert load({"server_url": "https://10.0.0.5:8420"}, {}, None).config.server_url == "https://10.0.0.5:8420"


# --- settings of domains ---------------------------------------------------------------------------------------------


class Shelf(Struct, frozen=True):
    """The settings of some domain."""

    depth: Annotated[float, Meta(ge=0, le=9), about("how deep")] = 1.0
    key: Annotated[str, about("what opens it", secret=True)] = ""

    def __post_init__(self) -> None:
        if self.key == "lost":
            raise ValueError("a key that is at hand")


SHELF = {"shelf": Shelf}


def test_settings_of_a_domain_are_set_like_all_others(tmp_path: Path) -> None:
    file = written(tmp_path, "shelf_depth = 2.0\nport = 1")
    from_file = load({}, {}, file, SHELF)
    assert (from_file.config.domains["shelf"], from_file.sources["shelf_depth"]) == (Shelf(2.0), Source.FILE)
    assert value_of(from_file.config, "shelf_depth", SHELF) == 2.0
    assert value_of(from_file.config, "port", SHELF) == 1
    said = load({"shelf_depth": "4"}, {"STATEWARD_SHELF_DEPTH": "3", "STATEWARD_SHELF_KEY": "k"}, file, SHELF)
    assert (said.config.domains["shelf"], said.sources["shelf_depth"]) == (Shelf(4.0, "k"), Source.FLAG)
    assert load({}, {}, None, SHELF).config.domains == {"shelf": Shelf()}


def test_a_bad_setting_of_a_domain_is_refused_without_its_secret(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a number of at least 0 and at most 9"):
        load({}, {"STATEWARD_SHELF_DEPTH": "10"}, None, SHELF)
    with pytest.raises(BadInput, match="a key that is at hand") as caught:
        load({}, {"STATEWARD_SHELF_KEY": "lost"}, None, SHELF)
    assert "lost" not in str(caught.value)
    with pytest.raises(UnknownName):
        load({}, {}, written(tmp_path, "shelf_width = 2.0"), SHELF)
    with pytest.raises(UnknownName):
        load({"domains": "{}"}, {}, None, SHELF)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Rack(Struct, frozen=True):
    """Settings of every type that a domain may think of."""

    number: Annotated[float, about("any number")] = 0.0
    least: Annotated[float, Meta(ge=1), about("a limit on one side")] = 1.0
    most: Annotated[int, Meta(lt=2_000_000)] = 0
    count: int = 3
    maybe: int | None = None
    names: Annotated[list[str], about("names")] = []
    ports: tuple[int, ...] | None = None
    colour: Annotated[Colour, about("an enum")] = Colour.RED
    key: Annotated[str, Meta(min_length=9), about("a key", secret=True)] = "123456789"
    begins: datetime | None = None
    limits: dict[str, int] = {}
    either: list[int] | str = ""


RACK = {"rack": Rack}


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("number", "x", "a number"),
        ("least", "0.5", "a number of at least 1"),
        ("most", "2000000", "a whole number below 2000000"),
        ("count", "x", "a whole number"),
        ("maybe", "x", "a whole number or null"),
        ("ports", "80,x", "a list, each of them a whole number or null"),
        ("colour", "green", "one of red, blue"),
        ("key", "short", "text of at least 9 characters"),
        ("begins", "soon", "a time such as 2026-01-31T12:00:00Z"),
        ("limits", "x", "an object, not a text"),
    ],
)
def test_a_bad_setting_of_any_type_is_refused_with_what_would_do(name: str, text: str, allowed: str) -> None:
    with pytest.raises(BadInput) as refused:
        load({}, {f"STATEWARD_RACK_{name.upper()}": text}, None, RACK)
    assert refused.value.allowed == allowed


def test_commas_stand_between_the_items_of_a_list(tmp_path: Path) -> None:
    said = {"STATEWARD_RACK_NAMES": "a, b,", "STATEWARD_RACK_PORTS": "80,443", "STATEWARD_RACK_EITHER": "a,b"}
    rack = load({}, said, None, RACK).config.domains["rack"]
    assert (rack.names, rack.ports, rack.either) == (["a", "b"], (80, 443), "a,b")
    assert load({"rack_names": "x"}, {}, None, RACK).config.domains["rack"].names == ["x"]
    assert load({}, {"STATEWARD_RACK_NAMES": ""}, None, RACK).config.domains["rack"].names == []
    with pytest.raises(BadInput, match="a list, each of them text"):
        load({}, {}, written(tmp_path, 'rack_names = "a,b"'), RACK)


def test_the_default_of_a_list_is_described() -> None:
    assert known_settings(RACK)["rack_names"].default == []


def test_settings_of_a_domain_are_described_and_secret_ones_are_known() -> None:
    assert describe(SHELF)[len(NAMES) :] == [("shelf_depth", 1.0, "how deep"), ("shelf_key", "", "what opens it")]
    assert [name for name, one in known_settings(SHELF).items() if one.is_secret] == ["shelf_key"]


class Keyed(Struct, frozen=True):
    key: Annotated[str, about("a key", secret=True)] = ""

    def __post_init__(self) -> None:
        if self.key:
            raise ValueError(f"another key than {self.key}")


def test_the_check_of_a_secret_setting_does_not_tell_its_value() -> None:
    with pytest.raises(BadInput, match=r"must be another key than \*\*\*") as raised:
        load({}, {"STATEWARD_LAMP_KEY": "s3cret"}, None, {"lamp": Keyed})
    assert "s3cret" not in str(raised.value)


def test_paths_of_settings_are_hidden_from_programs_of_tenants(tmp_path: Path) -> None:
    sections = {"mci": MciSettings}
    flags = {"data": str(tmp_path / "data"), "tls_cert": "c", "tls_key": str(tmp_path / "key")}
    loaded = load({**flags, "mci_access_secret": str(tmp_path / "secret")}, {}, None, sections)
    assert set(hidden_paths(loaded.config)) == {tmp_path / "data", tmp_path / "key", tmp_path / "secret"}


def test_the_settings_file_and_files_of_credentials_are_hidden_from_programs_of_tenants(tmp_path: Path) -> None:
    file, logins = written(tmp_path, ""), "shop=env:SHOP, *=file:/opt/all logins.ini#night,a=file:/opt/a.ini"
    flags = {"data": str(tmp_path / "data"), "systems_registry_logins": logins}
    loaded = load(flags, {}, file, {"systems": SystemsSettings})
    files = {file, Path("/opt/all logins.ini"), Path("/opt/a.ini")}
    assert set(hidden_paths(loaded.config)) == {tmp_path / "data", *files}
