"""The check that refuses memory which grows with everything that a process has ever seen."""

import pytest

from tools.bounds import violations


def in_class(created: str, *used: str) -> str:
    """Return a module with a class that creates a collection, and a method for each use."""
    methods = "".join(f"    def use{number}(self, x):\n        {one}\n" for number, one in enumerate(used))
    return f"class Hub:\n    def __init__(self):\n        {created}\n{methods}"


GROWING = [
    in_class("self._seen = set()", "self._seen.add(x)"),
    in_class("self._seen: dict[str, int] = {}", "self._seen[x] = 1"),
    in_class("self._a, self._seen = 1, list[int]()", "self._seen.append(x)"),
    in_class("self._locks = defaultdict(Lock)", "return self._locks[x]"),
    in_class("self._count = Counter()", "self._count[x] += 1"),
    in_class("self._queue = asyncio.Queue()", "self._queue.put_nowait(x)"),
    in_class("self._seen = {}", "self._seen |= x"),
    in_class("self._seen = {}", "heappush(self._seen, x)"),
    in_class("self._seen = {}", "return self._seen.setdefault(x, self._seen.get(x))"),
    "class Hub(Struct):\n    seen: set = field(default_factory=set)\n    def use(self, x):\n        self.seen.add(x)\n",
    "_seen = {}\ndef use(x):\n    _seen[x] = 1\n",
    "@cache\ndef use(x):\n    return x\n",
    "@functools.lru_cache(maxsize=None)\ndef use(x):\n    return x\n",
]


@pytest.mark.parametrize("source", GROWING)
def test_what_only_grows_is_refused_without_a_reason(source: str) -> None:
    ((line, _),) = violations(source)
    lines = source.split("\n")
    lines[line - 1] += "  # bounded by: the names of nodes"
    assert list(violations("\n".join(lines))) == []
    assert list(violations(f"# bounded by: one request\n{source}")) == []


@pytest.mark.parametrize(
    "source",
    [
        in_class("self._seen = set()", "self._seen.add(x)", "self._seen.discard(x)"),
        in_class("self._seen = set()", "self._seen.add(x)", "x.add_done_callback(self._seen.discard)"),
        in_class("self._seen = {}", "self._seen[x] = 1", "del self._seen[x]"),
        in_class("self._seen = []", "self._seen.append(x)", "del self._seen[:-9]"),
        in_class("self._seen = []", "self._seen.append(x)", "seen, self._seen = self._seen, []"),
        in_class("self._queue = asyncio.Queue()", "self._queue.put_nowait(x)", "return self._queue.get()"),
        in_class("self._queue = asyncio.Queue(9)", "self._queue.put_nowait(x)"),
        in_class("self._seen = deque(maxlen=9)", "self._seen.append(x)"),
        in_class("self._locks = WeakValueDictionary()", "self._locks[x] = 1"),
        in_class("self._seen = {}; self._seen[1] = 1", "return self._seen.get(x)"),
        "_known = {}\n_known['a'] = 1\ndef use(x):\n    return _known[x]\n",
        "_known = []\ndef use(x):\n    global _known\n    _known.append(x)\n    _known = []\n",
        "def use(x):\n    found = []\n    found.append(x)\n",
        "@lru_cache\ndef use(x):\n    return x\n",
        "@cache\ndef use():\n    return 1\n",
    ],
)
def test_what_is_also_removed_or_has_a_limit_is_accepted(source: str) -> None:
    assert list(violations(source)) == []
