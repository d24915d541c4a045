"""The agent protocol and both its ends: the controller's connections, and agents that work at remote sites.

An agent knows names, generations and specs, but no domain. Its site knows how to create what a spec describes.
"""
