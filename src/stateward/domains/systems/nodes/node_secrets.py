"""The values of secrets for agents of nodes: read when they are asked for, and stored nowhere.

An agent gets the secrets of the instances that are placed on its node, and no others, over a connection that nobody on
the network can read. Orders and records of placements have the names of secrets only.
"""

from stateward.agents.connection import AgentConnection
from stateward.agents.node_messages import SecretAnswer, SecretRequest
from stateward.agents.secret_requests import NOT_PRIVATE
from stateward.domains.systems.backends.port import ReadSecrets
from stateward.domains.systems.nodes.node_instances import NodeInstances
from stateward.domains.systems.nodes.node_model import placed_instance
from stateward.errors import StatewardError
from stateward.store.records import Key


class NodeSecrets:
    """Answers the requests of agents for values of secrets."""

    def __init__(self, instances: NodeInstances, read_secrets: ReadSecrets) -> None:
        self._instances, self._read_secrets = instances, read_secrets

    async def answer(self, connection: AgentConnection, node: Key, request: SecretRequest) -> SecretAnswer:
        """Return the value of a secret, or why there is none."""
        about = request.request, connection.notify
        if not connection.is_private:
            return SecretAnswer(*about, error=NOT_PRIVATE)
        try:
            if request.secret not in await self._used(node):
                return SecretAnswer(*about, error=f"no instance on node {node.id} uses it")
            secrets = await self._read_secrets(node.ns, [request.secret])
        except StatewardError as error:
            return SecretAnswer(*about, error=str(error), retry=error.retry)
        return SecretAnswer(*about, value=str(secrets[request.secret]))

    async def _used(self, node: Key) -> set[str]:
        placed = await self._instances.of(node)
        return {
            secret.secret for instance in placed for secret in placed_instance(instance).want.service.secrets.values()
        }
