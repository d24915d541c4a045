"""What the parties say to each other, and what each of them knows."""

from enum import StrEnum

from msgspec import Struct

from stateward.domains.edge.lifecycle import IGNORE_TRANSIENT, ClusterInstState
from stateward.lifecycle import ADMIN, NO_FACTS, USER, State

S = ClusterInstState


class Work(StrEnum):
    """What an agent can be asked to do."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


BEGUN = {Work.CREATE: "creating", Work.UPDATE: "updating", Work.DELETE: "deleting"}
ENDED = {Work.CREATE: "ready", Work.UPDATE: "ready", Work.DELETE: "deleted"}
FAILED = {work: f"{work} error" for work in Work}
BUSY = "busy"


class Order(Struct, frozen=True):
    """A request to the agent."""

    work: Work
    operation: int
    generation: int
    notify: int

    def __str__(self) -> str:
        return f"{self.work} (operation {self.operation}, generation {self.generation}, notify {self.notify})"


class Item(Struct, frozen=True):
    """A line of the agent's list: what it works at (0: nothing), and what exists (generation 0: nothing)."""

    operation: int
    generation: int
    whole: bool
    notify: int

    def __str__(self) -> str:
        work = f"works at operation {self.operation}" if self.operation else "idle"
        return f"item ({_existing(self.generation, self.whole)}, {work}, notify {self.notify})"


class End(Struct, frozen=True):
    """The end of the agent's list, and how many lines it has, since it may overtake them."""

    count: int
    notify: int

    def __str__(self) -> str:
        return f"end of list ({self.count}, notify {self.notify})"


class Hello(Struct, frozen=True):
    """The agent dials; says which connection it believes to have."""

    connection: int


class Wish(Struct, frozen=True):
    """Somebody asks for something."""

    event: str
    actor: str = USER
    facts: frozenset[str] = NO_FACTS


class Bell(StrEnum):
    """What the clock says: the deadline of the state has passed, or the undo has had no answer for long."""

    DEADLINE = "deadline"
    RETRY = "retry"


WISHES = (Wish("create"), Wish("update"), Wish("delete"))
FORCED_DELETE = Wish("delete", ADMIN, frozenset({IGNORE_TRANSIENT}))


class Book(Struct, frozen=True):
    """What the controller keeps for good: the object, the operation under way (0: none), and the numbers given."""

    state: State = S.NOT_PRESENT
    operation: int = 0
    generation: int = 0  # that the operation is about
    confirmed: int = 0  # the last one that was Ready; 0: never was
    origin: State | None = None  # where a delete began
    forced: bool = False  # it pre-empted what was under way
    tries: int = 0
    missing: bool = False  # the condition: Ready here, but not there
    issued: int = 0
    notify: int = 0

    def __str__(self) -> str:
        work = f"operation {self.operation}" if self.operation else "no operation"
        return f"{self.state}{' (missing)' if self.missing else ''}, {work}, generation {self.generation}"


class Link(Struct, frozen=True):
    """What the controller keeps in memory: its connection (0: none), the list so far, and whether the order is out."""

    connection: int = 0
    items: tuple[Item, ...] = ()
    expected: int | None = None
    settled: bool = False
    sent: bool = False


class Controller(Struct, frozen=True):
    """The controller, as far as this one instance goes."""

    book: Book = Book()
    link: Link = Link()

    def __str__(self) -> str:
        link = "not connected" if not self.link.connection else "settled" if self.link.settled else "waits for the list"
        return f"{self.book}, {link}"


class Site(Struct, frozen=True):
    """What really exists (generation 0: nothing); `applied` and `dialled` are kept for the proof only."""

    generation: int = 0
    whole: bool = True
    applied: int = 0
    dialled: int = 0


class Mind(Struct, frozen=True):
    """What the agent has in memory: its connection (0: none), its work, and the last answer it gave."""

    connection: int = 0
    work: Order | None = None
    operation: int = 0  # the last one finished
    answer: str = ""


class Agent(Struct, frozen=True):
    """The agent, and the site that it works at."""

    site: Site = Site()
    mind: Mind = Mind()

    def __str__(self) -> str:
        work = f"works at {self.mind.work}" if self.mind.work is not None else "idle"
        return f"{_existing(self.site.generation, self.site.whole)}, {work}"


def fulfils(generation: int, whole: bool, order: Order) -> bool:
    """Tell whether what exists is what an order asks for."""
    return generation == 0 if order.work is Work.DELETE else (generation == order.generation and whole)


def _existing(generation: int, whole: bool) -> str:
    return f"has generation {generation}{'' if whole else ' in pieces'}" if generation else "has nothing"
