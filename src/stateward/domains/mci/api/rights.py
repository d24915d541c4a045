"""Who may use the routes, and how errors are worded: this API's clients read a field `message`."""

from stateward.access import Right
from stateward.domains.plugin import needs, open_to_all

READ = needs(Right.READ, messages=True)
ACT = needs(Right.ACT, messages=True)
READ_ALL = needs(Right.READ, everywhere=True)
GOVERN_ALL = needs(Right.GOVERN, everywhere=True)
OPEN = open_to_all("whoever starts the server must see that it is ready")
