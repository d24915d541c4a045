"""Metrics as one group of readers sees them.

Labels name lanes and actions. A lane can be the name of a node, and an action an operation that is hidden from users.
So internal lanes of a kind are one lane, and what is counted of internal operations is left out.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.samples import Sample

from stateward.engine.privacy import Disclosure

LARGEST = frozenset({"stateward_operation_oldest_seconds", "stateward_lane_backed_off"})
"""Of several lanes that are shown as one, the largest of these counts; of all others the sum."""


class DisclosedRegistry(CollectorRegistry):
    """A registry as its readers see it."""

    def __init__(self, registry: CollectorRegistry, disclosure: Disclosure) -> None:
        super().__init__()
        self._whole, self._disclosure = registry, disclosure

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with those samples that are shown."""
        for metric in self._whole.collect():
            metric.samples = list(self._shown(metric.samples))
            yield metric

    def _shown(self, samples: Iterable[Sample]) -> Iterable[Sample]:
        shown: dict[tuple[str, str], Sample] = {}
        for one in samples:
            labels = one.labels
            if "action" in labels and self._disclosure.hides_action(labels["kind"], labels["action"]):
                continue
            if "lane" in labels:
                labels = {**labels, "lane": self._disclosure.lane(labels["lane"])}
            key = one.name, str(sorted(labels.items()))
            before = shown[key].value if key in shown else 0.0
            value = max(before, one.value) if one.name in LARGEST else before + one.value
            shown[key] = one._replace(labels=labels, value=value)
        return shown.values()


def metrics_text(registry: CollectorRegistry, disclosure: Disclosure) -> str:
    """Return what Prometheus reads."""
    return generate_latest(DisclosedRegistry(registry, disclosure)).decode()
