"""The manifest of an app as processes: shell programs, set-up scripts and probes."""

from collections.abc import Collection
from shlex import join, quote

import msgspec

from stateward.agents.local_state import Deployed
from stateward.agents.messages import SiteBackend
from stateward.agents.site import SiteError
from stateward.domains.edge.sites.app_manifest import AppPart, AppProgram, check_backend, parts_of
from stateward.domains.edge.sites.app_probes import ProbedApp
from stateward.errors import BadInput
from stateward.workloads.tcp_sockets import PROBE_SOURCE


def probed_parts(things: Collection[Deployed]) -> dict[str, ProbedApp]:
    """Return the parts that have a probe of apps that are whole; one that is being changed has no health."""
    apps = [thing for thing in things if thing.kind == "appinst" and thing.whole]
    programs = {app: msgspec.json.decode(app.spec or "{}", type=AppProgram) for app in apps}
    probed = (
        ProbedApp(
            f"{app.name}/{part.name}" if program.parts else app.name, app.generation, part.probe, source=PROBE_SOURCE
        )
        for app, program in programs.items()
        for part in parts_of(program)
        if part.probe is not None
    )
    return {part.name: part for part in probed}


def _parts(spec: str) -> tuple[AppPart, ...]:
    """Return the parts of an app; raises `SiteError` if processes cannot honour them."""
    try:
        app = msgspec.json.decode(spec, type=AppProgram)
        check_backend(app, SiteBackend.PROCESS)
    except (msgspec.ValidationError, BadInput) as error:
        raise SiteError(str(error)) from error
    return parts_of(app)


def shell_programs(spec: str) -> list[str]:
    """Return the shell program of each process of an app, in the order of its parts."""
    programs = []
    for part in _parts(spec):
        variables = "".join(f"export {name}={quote(value)}\n" for name, value in part.env.items())
        command = part.command if isinstance(part.command, str) else join(part.command)
        programs += [f"{variables}{command}"] * part.count
    return programs


def setup_scripts(spec: str) -> list[str]:
    """Return the set-up scripts of an app's parts."""
    return [part.setup for part in _parts(spec) if part.setup]
