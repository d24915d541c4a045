"""`stateward edge ...`: cloudlets with their agents, clusters and apps, and the records that they are made from."""

from typing import Annotated, Any

import typer

from stateward.client.formatting import filled_table
from stateward.client.output import print_json, results
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Timeout, Wait
from stateward.domains.edge.api.schemas import AgentsView
from stateward.domains.edge.cli.instance_requests import Ignore, ask, parts, path, retell, show_all, show_one
from stateward.domains.edge.cli.record_commands import register
from stateward.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Cloudlets with agents, and clusters and apps on them.")
cloudlets = typer.Typer(no_args_is_help=True, help="Edge sites, each worked by its agent.")
clusters = typer.Typer(no_args_is_help=True, help="Clusters on cloudlets: CLOUDLET/CLUSTER.")
appinsts = typer.Typer(no_args_is_help=True, help="Apps in clusters: CLOUDLET/CLUSTER/APP.")
app.add_typer(cloudlets, name="cloudlet")
app.add_typer(clusters, name="clusterinst")
app.add_typer(appinsts, name="appinst")
register(app)

Cloudlet = Annotated[str, typer.Argument(metavar="CLOUDLET", help="The cloudlet's name.")]
MaybeCloudlet = Annotated[str | None, typer.Argument(metavar="[CLOUDLET]", help="Only this one.")]
OnCloudlet = Annotated[str | None, typer.Option("--cloudlet", metavar="NAME", help="Only on this cloudlet.")]
Cluster = Annotated[str, typer.Argument(metavar="CLOUDLET/CLUSTER", help="The cluster.")]
MaybeCluster = Annotated[str | None, typer.Argument(metavar="[CLOUDLET/CLUSTER]", help="Only this one.")]
AppInst = Annotated[str, typer.Argument(metavar="CLOUDLET/CLUSTER/APP", help="The app in its cluster.")]
MaybeAppInst = Annotated[str | None, typer.Argument(metavar="[CLOUDLET/CLUSTER/APP]", help="Only this one.")]
Missing = Annotated[str | None, typer.Option("--missing", help="What is missing there: recreate, or leave.")]
Orphans = Annotated[str | None, typer.Option("--orphans", help="What nobody asked for: report, or remove.")]
Version = Annotated[str, typer.Argument(metavar="VERSION", help="The version that its successor is to have.")]
Within = Annotated[float, typer.Option("--within", min=0.1, max=600, metavar="SECONDS", help="Time to come up.")]
Installation = Annotated[
    str | None, typer.Option("--installation", metavar="ID", help="The held installation, if more than one is held.")
]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, help="How many nodes.")]
Flavor = Annotated[str | None, typer.Option("--flavor", help="The size of its nodes.")]
Organization = Annotated[str | None, typer.Option("--organization", help="Whose it is.")]
Setup = Annotated[str | None, typer.Option("--setup", metavar="COMMAND", help="What is run before it is ready.")]
Autoscale = Annotated[str | None, typer.Option("--autoscale", metavar="POLICY", help="By which policy it grows.")]
Reservable = Annotated[bool, typer.Option("--reservable", help="To be reserved by apps on an autocluster.")]
Command = Annotated[str | None, typer.Option("--command", metavar="COMMAND", help="What it runs.")]
Count = Annotated[int | None, typer.Option("--count", min=1, help="How many processes.")]
Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="An operation's id.")]

CLUSTER_FORM, APP_FORM = "CLOUDLET/CLUSTER", "CLOUDLET/CLUSTER/APP"


def _given(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever options there are
    return {name: value for name, value in values.items() if value is not None}


# --- cloudlets -------------------------------------------------------------------------------------------------------


@cloudlets.command("create")
@on_server
def create_cloudlet(
    session: Session,
    cloudlet: Cloudlet,
    missing: Missing = None,
    orphans: Orphans = None,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Make a cloudlet; it is ready when its agent is."""
    body = {"name": cloudlet, **_given(missing=missing, orphans=orphans)}
    ask(session, "POST", path(session, "cloudlets"), body, None, wait, timeout)


@cloudlets.command("update")
@on_server
def update_cloudlet(session: Session, cloudlet: Cloudlet, missing: Missing = None, orphans: Orphans = None) -> None:
    """Change what is done about what is missing, and about orphans."""
    body = _given(missing=missing, orphans=orphans)
    ask(session, "PATCH", path(session, "cloudlets", cloudlet), body, None, wait=False, timeout=None)


@cloudlets.command("delete")
@on_server
def delete_cloudlet(
    session: Session, cloudlet: Cloudlet, ignore: Ignore = None, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Delete a cloudlet that nothing is on but what goes along."""
    ask(session, "DELETE", path(session, "cloudlets", cloudlet), None, ignore, wait, timeout)


@cloudlets.command("upgrade")
@on_server
def upgrade_cloudlet(
    session: Session,
    cloudlet: Cloudlet,
    version: Version,
    within: Within = 60.0,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Have the agent start its successor, which takes over."""
    where = path(session, "cloudlets", cloudlet, "upgrade")
    ask(session, "POST", where, {"version": version, "within": within}, None, wait, timeout)


@cloudlets.command("fix")
@on_server
def fix_cloudlet(session: Session, cloudlet: Cloudlet) -> None:
    """Say that a failed upgrade is settled. For administrators."""
    ask(session, "POST", path(session, "cloudlets", cloudlet, "fix"), None, None, wait=False, timeout=None)


@cloudlets.command("handover")
@on_server
def hand_over_cloudlet(session: Session, cloudlet: Cloudlet, installation: Installation = None) -> None:
    """Hand a cloudlet over to an agent that is held. For administrators."""
    body = _given(installation=installation)
    ask(session, "POST", path(session, "cloudlets", cloudlet, "handover"), body, None, wait=False, timeout=None)


@cloudlets.command("show")
@on_server
def show_cloudlets(session: Session, cloudlet: MaybeCloudlet = None) -> None:
    """Show a cloudlet, or all of them."""
    if cloudlet is None:
        show_all(session, path(session, "cloudlets"))
    else:
        show_one(session, path(session, "cloudlets", cloudlet))


@app.command("agents")
@on_server
def show_agents(session: Session) -> None:
    """Show the agents that are connected to the controller that answers, and how many reports did not count."""
    found = session.client.http.call(AgentsView, "GET", path(session, "agents"))
    if session.json:
        print_json(found)
        return
    titles = ("cloudlet", "version", "notify", "settled", "orders")
    results().print(filled_table(titles, ([str(getattr(one, title)) for title in titles] for one in found.agents)))
    for why, number in sorted(found.rejected.items()):
        results().print(f"{number} reports rejected: {why}", markup=False)


@app.command("progress")
@on_server
def show_progress(session: Session, operation: Operation, timeout: Timeout = None) -> None:
    """Show what an operation has said from its beginning, and what it says until its end."""
    retell(session, operation, timeout)


# --- clusters --------------------------------------------------------------------------------------------------------


def _cluster(session: Session, name: str) -> str:
    cloudlet, cluster = parts(name, 2, CLUSTER_FORM)
    return path(session, "cloudlets", cloudlet, "clusterinsts", cluster)


@clusters.command("create")
@on_server
def create_cluster(
    session: Session,
    cluster: Cluster,
    nodes: Nodes = None,
    flavor: Flavor = None,
    organization: Organization = None,
    setup: Setup = None,
    autoscale: Autoscale = None,
    reservable: Reservable = False,
    ignore: Ignore = None,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Make a cluster of nodes on a cloudlet."""
    cloudlet, name = parts(cluster, 2, CLUSTER_FORM)
    given = _given(nodes=nodes, flavor=flavor, organization=organization, setup=setup, autoscale=autoscale)
    body = {"name": name, "reservable": reservable, **given}
    ask(session, "POST", path(session, "cloudlets", cloudlet, "clusterinsts"), body, ignore, wait, timeout)


@clusters.command("update")
@on_server
def update_cluster(
    session: Session,
    cluster: Cluster,
    nodes: Nodes = None,
    autoscale: Autoscale = None,
    ignore: Ignore = None,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Change how many nodes a cluster has, or by which policy."""
    body = _given(nodes=nodes, autoscale=autoscale)
    if not body:
        raise BadInput("options", "", "given: say what is to be changed")
    ask(session, "PATCH", _cluster(session, cluster), body, ignore, wait, timeout)


@clusters.command("delete")
@on_server
def delete_cluster(
    session: Session, cluster: Cluster, ignore: Ignore = None, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Delete a cluster that no app is in but such as go along."""
    ask(session, "DELETE", _cluster(session, cluster), None, ignore, wait, timeout)


@clusters.command("show")
@on_server
def show_clusters(session: Session, cluster: MaybeCluster = None, cloudlet: OnCloudlet = None) -> None:
    """Show a cluster, or all of them."""
    if cluster is None:
        show_all(session, path(session, "clusterinsts"), cloudlet)
    else:
        show_one(session, _cluster(session, cluster))


# --- apps in clusters ------------------------------------------------------------------------------------------------


def _appinst(session: Session, name: str) -> str:
    cloudlet, cluster, app_name = parts(name, 3, APP_FORM)
    return path(session, "cloudlets", cloudlet, "clusterinsts", cluster, "appinsts", app_name)


@appinsts.command("create")
@on_server
def create_appinst(
    session: Session, appinst: AppInst, ignore: Ignore = None, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Deploy an app in a cluster; on CLOUDLET/autocluster.../APP, a cluster is reserved for it or made."""
    cloudlet, cluster, name = parts(appinst, 3, APP_FORM)
    where = path(session, "cloudlets", cloudlet, "clusterinsts", cluster, "appinsts")
    ask(session, "POST", where, {"app": name}, ignore, wait, timeout)


@appinsts.command("update")
@on_server
def update_appinst(
    session: Session,
    appinst: AppInst,
    command: Command = None,
    setup: Setup = None,
    count: Count = None,
    ignore: Ignore = None,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Change what an app instance runs."""
    body = _given(command=command, setup=setup, count=count)
    if not body:
        raise BadInput("options", "", "given: say what is to be changed")
    ask(session, "PATCH", _appinst(session, appinst), body, ignore, wait, timeout)


@appinsts.command("refresh")
@on_server
def refresh_appinst(session: Session, appinst: AppInst, wait: Wait = False, timeout: Timeout = None) -> None:
    """Bring an app instance up to what its app is now."""
    ask(session, "POST", f"{_appinst(session, appinst)}/refresh", None, None, wait, timeout)


@appinsts.command("delete")
@on_server
def delete_appinst(
    session: Session, appinst: AppInst, ignore: Ignore = None, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Delete an app instance."""
    ask(session, "DELETE", _appinst(session, appinst), None, ignore, wait, timeout)


@appinsts.command("show")
@on_server
def show_appinsts(session: Session, appinst: MaybeAppInst = None, cloudlet: OnCloudlet = None) -> None:
    """Show an app instance, or all of them."""
    if appinst is None:
        show_all(session, path(session, "appinsts"), cloudlet)
    else:
        show_one(session, _appinst(session, appinst))
