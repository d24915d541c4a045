"""The page of the settings, from what `stateward config` asks too."""

from stateward.config import describe
from stateward.data_folder import PREFIX
from stateward.plugin.registry import installed
from tools.reference.markdown import code, joined, table

ABOUT = """Each can be given as a flag (`--log-format`, or `--set NAME=VALUE` for one without a flag of its own), in the
environment (`STATEWARD_LOG_FORMAT`), or in a TOML file (`log_format`, named by `--config FILE` or `STATEWARD_CONFIG`);
the first of these counts. `stateward config` shows what is in force, and where it came from. What is not understood is
refused, and never ignored. The settings of a domain begin with its name."""


def rows() -> list[tuple[str, str, str, str]]:
    """Return a row for every setting: its name, its variable, its default, its meaning."""
    found = describe(installed().sections)
    return [(code(name), code(PREFIX + name.upper()), _shown(default), about) for name, default, about in found]


def _shown(default: object) -> str:
    return {"True": "`true`", "False": "`false`", "": ""}.get(str(default), code(default))


def page() -> str:
    """Return the page."""
    return joined("# Settings", ABOUT, table(("setting", "in the environment", "default", "meaning"), rows()))
