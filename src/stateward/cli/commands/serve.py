"""`stateward serve`, `stateward worker` and `stateward config`: the processes, and their settings.

A setting comes from a flag, from an environment variable (`STATEWARD_PORT`) or from a TOML file, in that order.
"""

import gc
import os
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stateward import __version__
from stateward.client.arguments import parse_pairs
from stateward.client.output import Json, plain_table, print_json, results
from stateward.config import (
    Config,
    Loaded,
    Source,
    choice_of_domains,
    describe,
    known_settings,
    load,
    masked,
    value_of,
)
from stateward.data_folder import DEFAULT_FOLDER, PREFIX
from stateward.errors import BadInput
from stateward.plugin.registry import Plugins, find_plugins
from stateward.workloads.confinement import seal_process

if TYPE_CHECKING:
    from stateward.server.run import ServerInfo

CONFIG_FILE = f"{PREFIX}CONFIG"


def _option(setting: str, *flags: str, **how: Any) -> Any:  # noqa: ANN401 - as the parser declares it
    """Return the option of a setting; its help shows the default, which the setting has and not the option."""
    value = getattr(Config(), setting)
    default = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return typer.Option(*flags, show_default=default, **how)


File = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help=f"A TOML file with settings (or {CONFIG_FILE}).")
]
Data = Annotated[
    str | None, _option("data", metavar="DIR", help="Folder of the embedded database and the admin token.")
]
Database = Annotated[str | None, typer.Option(metavar="URL", help="postgresql://... for scale-out.")]
Pooler = Annotated[
    bool | None,
    _option("pooler", "--pooler/--no-pooler", help="The database is a pooler in transaction mode (PgBouncer)."),
]
DirectUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="postgresql://... past the pooler, for notifications.")
]
WaitForDatabase = Annotated[
    float | None,
    _option("wait_for_database", metavar="SECONDS", help="How long to wait at the start until PostgreSQL answers."),
]
Host = Annotated[str | None, _option("host", help="Address to listen on.")]
Port = Annotated[int | None, _option("port", help="Port to listen on; 0 picks a free one.")]
Worker = Annotated[bool | None, _option("worker", "--worker/--no-worker", help="Run a worker in the server's process.")]
Slots = Annotated[int | None, _option("slots", help="Operations that one worker runs at once.")]
Lease = Annotated[float | None, _option("lease", help="Seconds of silence after which a worker is taken for dead.")]
History = Annotated[
    int | None,
    _option("history", metavar="DAYS", help="Days after which workers prune what has ended; 0 keeps it for ever."),
]
Domain = Annotated[
    list[str] | None,
    typer.Option("--domain", metavar="MODULE:ATTRIBUTE", help="A further domain: where its plug-in is. Repeatable."),
]
Only = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Load these domains only, such as mci,leases; all if not given.")
]
Demo = Annotated[bool | None, _option("demo", "--demo/--no-demo", help="Keep a living demo fleet on simulated clouds.")]
Local = Annotated[
    bool | None,
    _option(
        "local", "--local/--no-local", help="Offer the connection local: machines that are processes of this host."
    ),
]
TlsCert = Annotated[str | None, typer.Option(metavar="FILE", help="Certificate; with --tls-key, HTTPS is served.")]
TlsKey = Annotated[str | None, typer.Option(metavar="FILE", help="Private key.")]
BodyLimit = Annotated[int | None, _option("body_limit", help="Largest request body, in bytes.")]
PageLimit = Annotated[int | None, _option("page_limit", help="Most rows in one answer.")]
Rate = Annotated[int | None, _option("rate", help="Requests per second that one token may make.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting by its name (see `stateward config`). Repeatable."),
]
LogFormat = Annotated[str | None, _option("log_format", metavar="text|json", help="Form of the log.")]
LogLevel = Annotated[
    str | None, _option("log_level", metavar="LEVEL", help="What is logged: debug, info, warning or error.")
]


def serve(
    config: File = None,
    data: Data = None,
    database: Database = None,
    pooler: Pooler = None,
    direct_url: DirectUrl = None,
    wait_for_database: WaitForDatabase = None,
    host: Host = None,
    port: Port = None,
    worker: Worker = None,
    slots: Slots = None,
    lease: Lease = None,
    history: History = None,
    domain: Domain = None,
    only: Only = None,
    demo: Demo = None,
    local: Local = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    body_limit: BodyLimit = None,
    page_limit: PageLimit = None,
    rate: Rate = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    set_: Set = None,
) -> None:
    """Serve the API and the console, with a worker in the same process.

    The data is in a folder, unless --database names a PostgreSQL database.

      stateward serve --data my-data
      stateward serve --demo --port 0
    """
    loaded = in_force(config, _flags(locals()))
    gc.disable()  # until all is loaded: a tenth of the time
    from stateward.server import run  # imported here, because other commands do not need the server
    from stateward.server.telemetry.logs import start_logging

    seal_process()
    os.umask(0o077)  # what we create is for nobody else, wherever it is
    is_quiet = loaded.config.demo and loaded.sources["log_level"] is Source.DEFAULT
    start_logging(loaded.config.log_format, "error" if is_quiet else loaded.config.log_level)
    own_folder = _mark_demo_folder(loaded)
    run.run_on_best_loop(run.serve(loaded.config, lambda started: _announce(started, loaded.config)))
    if own_folder is not None:
        rmtree(own_folder, ignore_errors=True)


DEMO_MARK = "made-by-the-demo"


def _mark_demo_folder(loaded: Loaded) -> Path | None:
    """Return the data folder if it belongs to the demo alone, which removes it when it stops.

    That is the default folder if a demo has made it. The mark tells so to a demo that is started after a crash.
    """
    folder = Path(loaded.config.data)
    if not loaded.config.demo or loaded.config.database or loaded.sources["data"] is not Source.DEFAULT:
        return None
    if not folder.exists():
        folder.mkdir(mode=0o700)
        (folder / DEMO_MARK).touch()
    return folder if (folder / DEMO_MARK).exists() else None


def worker(
    config: File = None,
    data: Data = None,
    database: Database = None,
    pooler: Pooler = None,
    direct_url: DirectUrl = None,
    wait_for_database: WaitForDatabase = None,
    slots: Slots = None,
    lease: Lease = None,
    history: History = None,
    domain: Domain = None,
    only: Only = None,
    demo: Demo = None,
    local: Local = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    set_: Set = None,
) -> None:
    """Run a worker without a server.

    Any number of workers share the work of a deployment on PostgreSQL.

      stateward worker --database postgresql://db/stateward
    """
    settings = in_force(config, {**_flags(locals()), "worker": True}).config
    gc.disable()
    from stateward.server import run
    from stateward.server.data_dir import DataDir
    from stateward.server.telemetry.logs import start_logging

    seal_process()
    os.umask(0o077)  # what we create is for nobody else, wherever it is
    start_logging(settings.log_format, settings.log_level)
    if not settings.database:
        DataDir(settings).create()
    where = masked(settings.store_url)
    run.run_on_best_loop(run.work(settings, lambda name: _say(f"Worker {name} is at work on {where}")))


def config(file: File = None, domain: Domain = None, only: Only = None, json: Json = False) -> None:
    """Show every setting: its value, its source and its meaning."""
    loaded = in_force(file, {"domain": _joined(domain), "only": only})
    of_domains = plugins_of(loaded.config).sections
    secret = {name for name, setting in known_settings(of_domains).items() if setting.is_secret}
    shown = [
        {
            "name": name,
            "value": _masked(value_of(loaded.config, name, of_domains), secret=name in secret),
            "source": loaded.sources[name],
            "about": about,
        }
        for name, _, about in describe(of_domains)
    ]
    if json:
        print_json(shown)
        return
    table = plain_table("setting", "value", "from", "meaning")
    for setting in shown:
        table.add_row(setting["name"], str(setting["value"]), str(setting["source"]), setting["about"])
    results().print(table)


def in_force(file: Path | None, flags: Mapping[str, object]) -> Loaded:
    """Load the configuration; an error shows no password."""
    named = os.environ.get(CONFIG_FILE)
    path = file or (Path(named) if named else None)
    try:
        plugins = find_plugins(*choice_of_domains(flags, os.environ, path))
        return load(flags, os.environ, path, plugins.sections, plugins.unchosen)
    except BadInput as error:
        raise BadInput(error.field, _shown(error.value), error.allowed) from None


def plugins_of(settings: Config) -> Plugins:
    """Return the plug-ins that the settings choose."""
    return find_plugins(settings.domain, settings.only)


def _joined(domains: list[str] | None) -> str | None:
    return None if domains is None else ",".join(domains)


def _flags(given: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings that a command was given: by flags of their own, and by `--set`."""
    own = {name: value for name, value in given.items() if name not in ("config", "set_")}
    own["domain"] = _joined(given["domain"])
    named = parse_pairs("--set", given["set_"] or [])
    for name in named:
        if own.get(name) is not None:
            raise BadInput("--set", name, "a setting that no other flag sets")
    return own | named


def _masked(value: Any, *, secret: bool) -> Any:  # noqa: ANN401 - a setting
    return "***" if secret and value else _shown(value)


def _shown(value: Any) -> Any:  # noqa: ANN401 - a setting
    return masked(value) if isinstance(value, str) else msgspec.to_builtins(value)


def _announce(started: "ServerInfo", settings: Config) -> None:
    folder = "" if settings.data == DEFAULT_FOLDER else f" --data {settings.data}"
    _say(f"Stateward {__version__} answers on {started.url}")
    _say(f"  database  {masked(settings.store_url)}")
    _say(f"  token     {started.token_file or 'not known here: it was made at the first start of another server'}")
    if settings.demo:
        kept = (Path(settings.data) / DEMO_MARK).exists()
        _say(f"  demo      Ctrl-C ends it{', and removes its data' if kept else ''}; --log-level info shows its log")
    _say("  try")
    for command in _commands(settings):
        _say(f"    stateward {command}{folder}")


def _commands(settings: Config) -> tuple[str, ...]:
    """Return commands to begin with, of domains that are loaded."""
    names = plugins_of(settings).names
    if settings.demo:
        return ("list", *(["history mci/shop"] if "mci" in names else []), "top")
    return ("ovc create account acme --wait" if "ovc" in names else "plugins", "list", "top --once")


def _say(line: str) -> None:
    typer.echo(line)
