"""The end of crash loops: an instance that has run for long enough since its last re-creation."""

from collections.abc import Sequence

from msgspec.structs import replace

from stateward.domains.edge.lookups import save_status, unit_of_work
from stateward.domains.edge.model import INSTANCE_LIFECYCLES, InstanceStatus, instance_status
from stateward.domains.edge.records.alert_names import AlertName
from stateward.domains.edge.records.restarts import is_stable
from stateward.engine.alerts import save_alerts, without_alerts
from stateward.store.port import Tx
from stateward.store.records import Key


def is_looping(status: InstanceStatus) -> bool:
    """Tell whether an instance has the alert of a crash loop."""
    return any(alert.name == AlertName.CRASH_LOOP for alert in status.alerts)


async def end_crash_loops(tx: Tx, keys: Sequence[Key]) -> None:
    """End the alerts of instances that run, and have run for long enough."""
    async with unit_of_work(tx, keys) as uow:
        for key in keys:
            instance = uow.objects.get(key)
            if instance is None or instance.removed or instance.kind not in INSTANCE_LIFECYCLES:
                continue
            status = instance_status(instance)
            if status.missing or instance.state != "Ready" or not is_stable(status.restarted, uow.now):
                continue
            alerts = without_alerts(status.alerts, AlertName.CRASH_LOOP)
            changed = save_status(uow, instance, replace(status, restarts=0, alerts=alerts))
            save_alerts(uow, changed, status.alerts, alerts)
