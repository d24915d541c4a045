"""Who may do what: roles, and API tokens and sessions as objects with a lifecycle of their own."""

from stateward.access.roles import Right, Role
from stateward.access.tokens import Grant, TokenInfo, Tokens

__all__ = ["Grant", "Right", "Role", "TokenInfo", "Tokens"]
