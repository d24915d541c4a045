"""The controller's side of the agents: connections, reports, inventories and orders."""
