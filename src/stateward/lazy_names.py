"""Names of a package that are imported when they are used.

A package offers its public names in one place, but a process that uses one of them must not wait for the imports of all
others: a command ends in the time that importing the engine takes.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, by the modules that its names are in.

    No name may be that of a module in the package: importing the module would set it.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def find_name(name: str) -> Any:  # noqa: ANN401 - any public name
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    return find_name
