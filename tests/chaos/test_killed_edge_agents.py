"""Agents and engines that are killed while they create, update and delete containers: nothing is doubled or leaked."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import time
from pathlib import Path
from random import Random

import pytest

from tests.containers import PodmanService
from tests.integration.domains.edge.process_deployment import ProcessDeployment
from tests.integration.domains.edge.process_deployment import kill as kill_process
from tests.integration.domains.edge.test_containers import CLUSTER, Host, generation, open_cloudlet, web
from tests.long_forms import in_long_form

APP = f"{CLUSTER}/appinsts/web"
COPIES = 3
MAX_DELAY_S = 1.2
VICTIMS = ("agent", "engine", "controller", "agent and engine")


def kill(victim: str, deployment: ProcessDeployment, podman: PodmanService) -> None:
    """Kill a victim as `kill -9` does, and start it again."""
    if "engine" in victim:
        podman.kill()
    if "agent" in victim:
        for pid in deployment.agents():  # one that just starts serves nobody yet
            kill_process(pid)
    if victim == "controller":
        deployment.kill_controller()
        deployment.serve()
    if "engine" in victim:
        podman.start()
    if "agent" in victim:
        deployment.work()


def check(deployment: ProcessDeployment, host: Host, method: str) -> None:
    """Wait until a request has ended well, and compare the engine with the records."""
    if method == "DELETE":
        deployment.until(APP, "NotPresent")
        assert host.everything() == (0, 1, 0)
    else:
        deployment.until(APP, "Ready", missing=False)
        assert (host.running(generation(deployment, APP)), host.everything()) == (COPIES, (COPIES, 1, 1))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", in_long_form(range(2), short=[]))
def test_the_engine_has_what_the_records_say_whatever_is_killed_when(
    podman: PodmanService, tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    with open_cloudlet(tmp_path, podman) as deployment:
        host = Host(podman, deployment)
        deployment.call("PUT", "/apps/web", web("first", count=COPIES), 200)
        for victim in chance.sample(VICTIMS, len(VICTIMS)):
            for method, path, body in (
                ("POST", f"{CLUSTER}/appinsts", {"app": "web"}),
                ("PATCH", APP, web(f"instead of {victim}", count=COPIES)),
                ("DELETE", APP, None),
            ):
                deployment.call(method, path, body)
                for _ in range(chance.choice((1, 2))):
                    time.sleep(chance.uniform(0, MAX_DELAY_S))
                    kill(victim, deployment, podman)
                check(deployment, host, method)
        deployment.call("DELETE", CLUSTER)
        deployment.until(CLUSTER, "NotPresent")
        assert host.everything() == (0, 0, 0)
        host.close()
