"""Configuration: flags before environment before file before default, and it can be asked where a value came from."""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, inspect

from stateward.data_folder import DATABASE_FILE, DEFAULT_FOLDER, PREFIX
from stateward.errors import BadInput, UnknownName
from stateward.validation_texts import explain

Port = Annotated[int, Meta(ge=0, le=65535)]
Some = Annotated[int, Meta(ge=1)]
Days = Annotated[int, Meta(ge=0, le=36_500)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Patience = Annotated[float, Meta(ge=0, le=86_400)]


def about(text: str, *, secret: bool = False, hidden: bool = False) -> Any:  # noqa: ANN401 - becomes part of an annotation
    """Describe a setting, for `stateward config` and the documentation; the value of a secret one is never shown.

    A `hidden` setting is a path that programs of tenants on this host must not see.
    """
    return Meta(description=text, extra={"secret": secret, "hidden": hidden})


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set; one line each, with what it means."""

    data: Annotated[str, about("folder of the embedded database and the admin token", hidden=True)] = DEFAULT_FOLDER
    database: Annotated[str, about("postgresql://... for scale-out; empty: embedded in the data folder")] = ""
    pooler: Annotated[bool, about("database is a pooler in transaction mode, such as PgBouncer")] = False
    direct_url: Annotated[str, about("postgresql://... past the pooler, for notifications; empty: poll")] = ""
    wait_for_database: Annotated[
        Patience, about("seconds to wait at the start for a PostgreSQL database that does not answer yet")
    ] = 60.0
    host: Annotated[str, about("address to listen on")] = "127.0.0.1"
    port: Annotated[Port, about("port to listen on; 0 picks a free one")] = 8420
    server_url: Annotated[
        str,
        about("the URL at which other servers of this database reach this one, for logs and commands of its agents"),
    ] = ""
    worker: Annotated[bool, about("run a worker in the server's process")] = True
    slots: Annotated[Some, about("operations that one worker runs at once")] = 500
    lease: Annotated[Seconds, about("seconds of silence after which a worker is taken for dead")] = 15.0
    history: Annotated[Days, about("days after which workers prune what has ended; 0 keeps it for ever")] = 0
    domain: Annotated[str, about("further domains, as module:attribute, with commas between them")] = ""
    only: Annotated[str, about("the only domains to load, by their names with commas between them; empty: all")] = ""
    demo: Annotated[bool, about("keep a living demo fleet on simulated clouds")] = False
    local: Annotated[bool, about("offer the connection `local`: machines that are processes of this host")] = True
    confinement: Annotated[
        Literal["required", "off"],
        about("programs of tenants on this host: required starts none that cannot be confined; off confines none"),
    ] = "required"
    machine_uids: Annotated[str, about("users of such programs, where the server is root: a range")] = "70000-79999"
    machine_paths: Annotated[str, about("further folders that such programs may read, with : between them")] = ""
    tls_cert: Annotated[str, about("certificate file; with tls_key, HTTPS is served")] = ""
    tls_key: Annotated[str, about("private key file", hidden=True)] = ""
    body_limit: Annotated[Some, about("largest request body, in bytes")] = 1_000_000
    page_limit: Annotated[Some, about("most rows in one answer")] = 1_000
    rate: Annotated[Some, about("requests per second that one token may make")] = 500
    wrong_tokens: Annotated[Some, about("wrong tokens per second from one address, or for one token id")] = 5
    trusted_proxies: Annotated[str, about("proxies whose X-Forwarded-For counts: 10.0.0.7, 10.1.0.0/16")] = ""
    cors_origins: Annotated[str, about("origins of pages that may call the API: https://map.example:1324, ...")] = ""
    body_time: Annotated[Seconds, about("seconds for a request body to arrive, and one more for each 16 KiB")] = 30.0
    log_format: Annotated[Literal["text", "json"], about("form of the log")] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("what is logged")] = "info"

    domains: dict[str, Any] = {}  # the settings of domains that have some, by their prefix: records of their own
    settings_file: Path | None = None  # where settings were read from

    @property
    def store_url(self) -> str:
        """Where the data is."""
        return self.database or str(Path(self.data) / DATABASE_FILE)


class Source(StrEnum):
    """Where a value came from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


class Loaded(Struct, frozen=True):
    """The configuration in force, and where each value came from."""

    config: Config
    sources: dict[str, Source]


NAMES = tuple(name for name in Config.__struct_fields__ if name not in ("domains", "settings_file"))
Sections = Mapping[str, type[Struct]]
"""The records of the settings that domains have, by the prefix of their names."""

NO_SECTIONS: Sections = {}

LISTS = inspect.ListType | inspect.SetType | inspect.FrozenSetType | inspect.VarTupleType | inspect.TupleType


class Setting(Struct, frozen=True):
    """A setting: the record that it is a field of, and what it is called there."""

    record: type[Struct]
    field: str

    @property
    def kind(self) -> inspect.Type:
        """What its value can be."""
        return _type_of(self)

    @property
    def is_list(self) -> bool:
        """Whether its value is a list, and no text."""
        kinds = _bare_types(self.kind)
        return any(isinstance(kind, LISTS) for kind in kinds) and not any(
            isinstance(kind, inspect.StrType) for kind in kinds
        )

    @property
    def default(self) -> object:
        """Its value where nothing is said."""
        made = self._info.default_factory
        return made() if callable(made) else self._info.default

    @property
    def about(self) -> str:
        """Its description."""
        return str((getattr(self.kind, "extra_json_schema", None) or {}).get("description", ""))

    @property
    def is_secret(self) -> bool:
        """Whether its value is never shown."""
        return bool((getattr(self.kind, "extra", None) or {}).get("secret"))

    @property
    def is_hidden(self) -> bool:
        """Whether its value is a path that programs of tenants must not see."""
        return bool((getattr(self.kind, "extra", None) or {}).get("hidden"))

    @property
    def _info(self) -> msgspec.structs.FieldInfo:
        return next(field for field in msgspec.structs.fields(self.record) if field.name == self.field)


@lru_cache(1024)  # it takes a tenth of a millisecond, and a server asks for each setting at its start
def _type_of(setting: Setting) -> inspect.Type:
    return inspect.type_info(setting._info.type)  # noqa: SLF001


def _bare_types(kind: inspect.Type) -> list[inspect.Type]:
    """Return the types that a value may have, without the unions and metadata around them."""
    match kind:
        case inspect.Metadata(type=inner):
            return _bare_types(inner)
        case inspect.UnionType(types=types):
            return [bare for member in types for bare in _bare_types(member)]
        case _:
            return [kind]


def known_settings(sections: Sections = NO_SECTIONS) -> dict[str, Setting]:
    """Return every setting by its name; those of a domain begin with its prefix."""
    settings = {name: Setting(Config, name) for name in NAMES}
    for prefix, record in sections.items():
        settings |= {f"{prefix}_{name}": Setting(record, name) for name in record.__struct_fields__}
    return settings


def choice_of_domains(flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None) -> tuple[str, str]:
    """Return the settings `domain` and `only`: the settings of domains are known only after the domains are loaded."""
    said = {} if file is None else _read_file(file)
    chosen = [
        flags.get(name) or environ.get(PREFIX + name.upper()) or said.get(name) or "" for name in ("domain", "only")
    ]
    return str(chosen[0]), str(chosen[1])


def load(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: Path | None,
    sections: Sections = NO_SECTIONS,
    unloaded: Collection[str] = (),
) -> Loaded:
    """Put the configuration together; flags that are None were not given.

    In a file, the settings of `unloaded` domains are skipped: processes with different domains may share the file.
    """
    known = known_settings(sections)
    given = {
        Source.FILE: _from_file(file, known, unloaded) if file is not None else {},
        Source.ENVIRONMENT: _from_environment(environ, known),
        Source.FLAG: {name: value for name, value in flags.items() if value is not None},
    }
    records: list[type[Struct]] = [Config, *sections.values()]
    values: dict[type[Struct], dict[str, object]] = {record: {} for record in records}
    sources = dict.fromkeys(known, Source.DEFAULT)
    for source, said in given.items():
        for name, value in said.items():
            setting = known.get(name)
            if setting is None:
                raise UnknownName(f"setting ({source})", name, known)
            values[setting.record][setting.field] = _read(name, setting, value, source)
            sources[name] = source
    domains = {prefix: record(**values[record]) for prefix, record in sections.items()}
    config = Config(**values[Config], domains=domains, settings_file=file)  # type: ignore[arg-type]
    return Loaded(_checked(config), sources)


def value_of(config: Config, name: str, sections: Sections = NO_SECTIONS) -> object:
    """Return the value of a setting that is in force."""
    setting = known_settings(sections)[name]
    prefix = name.removesuffix(f"_{setting.field}")
    return getattr(config if setting.record is Config else config.domains[prefix], setting.field)


def _checked(config: Config) -> Config:
    """Refuse settings that make no sense together."""
    if bool(config.tls_cert) != bool(config.tls_key):
        missing = "tls_key" if config.tls_cert else "tls_cert"
        raise BadInput(missing, None, "a file: a certificate and its key come together")
    if config.pooler and not config.database.startswith("postgres"):
        raise BadInput("pooler", True, "false: only a database on PostgreSQL is reached through a pooler")
    if config.direct_url and not (config.pooler and config.direct_url.startswith("postgres")):
        raise BadInput("direct_url", masked(config.direct_url), "postgresql://..., together with pooler = true")
    if config.server_url and not config.server_url.startswith(("http://", "https://")):
        raise BadInput("server_url", masked(config.server_url), "a URL such as https://10.0.0.5:8420")
    return config


def _from_environment(environ: Mapping[str, str], known: Iterable[str]) -> dict[str, object]:
    return {name: environ[PREFIX + name.upper()] for name in known if PREFIX + name.upper() in environ}


def _from_file(file: Path, known: Collection[str], unloaded: Collection[str]) -> dict[str, object]:
    said = {
        name: value
        for name, value in _read_file(file).items()
        if name in known or not name.startswith(tuple(f"{domain}_" for domain in unloaded))
    }
    for name in said:
        if name not in known:
            raise UnknownName(f"setting in {file}", name, known)
    return said


def _read_file(file: Path) -> dict[str, object]:
    import tomllib  # most commands read no file

    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise BadInput("config", str(file), f"a file that can be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # also of a number that is too long for Python
        raise BadInput("config", str(file), f"TOML: {error}") from error


def _read(name: str, setting: Setting, value: object, source: Source) -> object:
    """Turn a value into the setting's type.

    In text, as the environment has it, `false` is false, `8` is eight, and commas stand between the items of a list.
    """
    is_text = isinstance(value, str) and source is not Source.FILE
    said = (
        [stripped for part in str(value).split(",") if (stripped := part.strip())]
        if is_text and setting.is_list
        else value
    )
    try:
        converted = msgspec.convert({setting.field: said}, setting.record, strict=source is Source.FILE)
    except msgspec.ValidationError as error:
        own = str(error.__cause__) if isinstance(error.__cause__, ValueError) else _allowed(setting.kind)
        allowed = own or explain(error, setting.record).allowed
        if setting.is_secret:  # the check of a struct may tell the value
            raise BadInput(f"{name} ({source})", "***", allowed.replace(str(value), "***")) from None
        raise BadInput(f"{name} ({source})", value, allowed) from None
    return getattr(converted, setting.field)


def hide_secrets(text: str, settings: object) -> str:
    """Return a text in which the values of secret settings are masked."""
    if isinstance(settings, Struct):
        for name in settings.__struct_fields__:
            value = getattr(settings, name)
            if value and Setting(type(settings), name).is_secret:
                text = text.replace(str(value), "***")
    return text


def hidden_paths(config: Config) -> list[Path]:
    """Return the paths that programs of tenants on this host must not see: those of settings, and the settings' file.

    A hidden setting is a path, or a list of references to credentials, whose files must not be seen.
    """
    own = [Setting(Config, name) for name in NAMES]
    settings = [(config, setting) for setting in own] + [
        (record, Setting(type(record), name)) for record in config.domains.values() for name in record.__struct_fields__
    ]
    values = [getattr(record, setting.field) for record, setting in settings if setting.is_hidden]
    paths = [path for value in values for path in re.findall(REFERENCE, value) or [value]]
    return [Path(path).resolve() for path in (config.settings_file, *paths) if path]


REFERENCE = r"(?:^|=)(?:env:\w+|file:([^,#]+))"  # to a credential; the group is empty unless it is a file


def masked(text: str) -> str:
    """Return a text without the passwords of the database URLs in it."""
    return re.sub(PASSWORD, r"\1***", re.sub(LOGIN, r"\1:***@", text))


LOGIN = r"(\w://[^\s:/@]*):\S*@"  # up to the last @, for a password may hold one
PASSWORD = r"(?i)(\bpassword=)[^\s&]+"  # noqa: S105 - a pattern


def describe(sections: Sections = NO_SECTIONS) -> list[tuple[str, object, str]]:
    """Return every setting with its default and its meaning."""
    return [(name, setting.default, setting.about) for name, setting in known_settings(sections).items()]


def _allowed(kind: inspect.Type) -> str | None:
    """Say what a setting can be; None for types that only the error itself can tell of."""
    match kind:
        case inspect.Metadata(type=inner):
            return _allowed(inner)
        case inspect.UnionType(types=types):
            ways = [_allowed(member) for member in types]
            return None if None in ways else " or ".join(way for way in ways if way is not None)
        case inspect.NoneType():
            return "null"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case inspect.EnumType(cls=members):
            return f"one of {', '.join(str(member.value) for member in members)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number{_limits(kind.ge, kind.gt, kind.le, kind.lt)}"
        case inspect.FloatType():
            return f"a number{_limits(kind.ge, kind.gt, kind.le, kind.lt)}"
        case inspect.StrType(pattern=None, min_length=least, max_length=most):
            limits = _limits(least, None, most, None)
            return f"text{limits} characters" if limits else "text"
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            item, limits = _allowed(kind.item_type), _limits(kind.min_length, None, kind.max_length, None)
            return None if item is None else f"a list{limits and f'{limits} items'}, each of them {item}"
        case _:
            return None


Limit: TypeAlias = float | None


def _limits(at_least: Limit, above: Limit, at_most: Limit, below: Limit) -> str:
    """Return the limits of a number, as they continue its noun."""
    named = (("at least", at_least), ("above", above), ("at most", at_most), ("below", below))
    text = " and ".join(
        f"{word} {limit if isinstance(limit, int) else f'{limit:g}'}" for word, limit in named if limit is not None
    )
    return f" of {text}" if text.startswith("at ") else f" {text}" if text else ""
