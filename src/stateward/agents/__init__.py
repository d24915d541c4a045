"""One protocol, two sides: the controller's lines to its agents, and the agents that work on remote sites.

An agent knows names, generations and specs, and no domain; what the things it makes are, its site knows.
"""
