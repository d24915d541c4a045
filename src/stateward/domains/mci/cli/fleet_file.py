"""Fleet files: an MCI in YAML, read strictly; an error names the file, the line and the field.

    name: shop
    groups:
      - {name: web, size: 3, spec: aws+ap-northeast-2+t3.nano, image: ubuntu22.04}

Fields have short names, or their names in the Tumblebug API (`subGroups`, `subGroupSize`, `specId`...), so the JSON
body of a request is a fleet file too. The server reads requests leniently. A file is read strictly, so that its author
sees a mistyped field.
"""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from stateward.documents import compose
from stateward.domains.mci.fleet_fields import COMMAND, GROUP, HEAD
from stateward.errors import StatewardError
from stateward.private_keys import has_private_key

WHOLE = re.compile(r"[0-9]{1,9}")
NOTHING = ("", "~", "null", "Null", "NULL")
POLICIES = ("continue", "rollback", "refine")

Body = dict[str, Any]


class BadFile(StatewardError):
    """A file that cannot be used: its line, its field, and the problem."""

    file: str
    line: int
    path: str
    allowed: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" + (f", {self.path}" if self.path else "")
        return f"{place}: {self.allowed}"


def read_fleet(text: str, file: str) -> Body:
    """Read a fleet file; returns the body of the request that creates its MCI."""
    try:
        node = compose(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadFile(file, line, "", f"must be YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise BadFile(file, 1, "", f"must be YAML: {str(error).splitlines()[0]}") from error
    if node is None:
        raise BadFile(file, 1, "", "it is empty; give a name and groups")
    return _Reader(file).fields(node, "", HEAD, ("name", "subGroups"))


Read = Callable[["_Reader", Node, str], Any]


class _Reader:
    """Reads the nodes of one file."""

    def __init__(self, file: str) -> None:
        self._file = file

    def wrong(self, node: Node, path: str, allowed: str) -> BadFile:
        """Return an error about a node."""
        return BadFile(self._file, node.start_mark.line + 1, path, allowed)

    def fields(self, node: Node, path: str, known: Mapping[str, str], needed: tuple[str, ...]) -> Body:
        """Read a mapping whose fields are known."""
        body: Body = {}
        for key, value in self._pairs(node, path):
            where = f"{path}.{key.value}" if path else str(key.value)
            name = self._known(key, where, known)
            if name in body:
                raise self.wrong(key, where, "must be given once: it is there twice")
            body[name] = READERS.get(name, _Reader.text)(self, value, where)
        for name in needed:
            if name not in body:
                short = next(word for word, wire in known.items() if wire == name)
                raise self.wrong(node, f"{path}.{short}" if path else short, "must be given")
        return body

    def _known(self, key: Node, where: str, known: Mapping[str, str]) -> str:
        name = known.get(key.value)
        if name is None:
            near = get_close_matches(str(key.value), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise self.wrong(key, where, f"there is no such field{hint} Known: {', '.join(known)}")
        return name

    def _pairs(self, node: Node, path: str) -> list[tuple[Node, Node]]:
        if not isinstance(node, MappingNode):
            raise self.wrong(node, path, "must be fields with values, such as `name: shop`")
        for key, _ in node.value:
            if not isinstance(key, ScalarNode) or key.value == "<<":
                raise self.wrong(key, path, "a field has a plain name")
        return list(node.value)

    # --- values ------------------------------------------------------------------------------------------------------

    def text(self, node: Node, where: str) -> str:
        """Read a text."""
        if not isinstance(node, ScalarNode) or (not node.style and node.value in NOTHING):
            raise self.wrong(node, where, "must be a text")
        return str(node.value)

    def key(self, node: Node, where: str) -> str:
        """Read a public key, or the name of a key; a private key must not leave this host."""
        text = self.text(node, where)
        if has_private_key(text):
            raise self.wrong(node, where, "must not be a private key: give the public one")
        return text

    def number(self, node: Node, where: str) -> int:
        """Read a whole number."""
        if not isinstance(node, ScalarNode) or not WHOLE.fullmatch(node.value) or int(node.value) < 1:
            raise self.wrong(node, where, "must be a whole number of at least 1")
        return int(node.value)

    def labels(self, node: Node, where: str) -> dict[str, str]:
        """Read labels."""
        return {str(key.value): self.text(value, f"{where}.{key.value}") for key, value in self._pairs(node, where)}

    def texts(self, node: Node, where: str) -> list[str]:
        """Read texts; a single text counts as a list of one."""
        if not isinstance(node, SequenceNode):
            return [self.text(node, where)]
        return [self.text(child, f"{where}.{number}") for number, child in enumerate(node.value)]

    def policy(self, node: Node, where: str) -> str:
        """Read the policy on partial failure."""
        word = self.text(node, where)
        if word not in POLICIES:
            raise self.wrong(node, where, f"must be one of {', '.join(POLICIES)}")
        return word

    def groups(self, node: Node, where: str) -> list[Body]:
        """Read the subgroups; their numbers in paths start at 0."""
        if not isinstance(node, SequenceNode) or not node.value:
            raise self.wrong(node, where, "must be a list of at least one group of VMs")
        return [
            self.fields(child, f"{where}.{number}", GROUP, ("specId", "imageId"))
            for number, child in enumerate(node.value)
        ]

    def command(self, node: Node, where: str) -> Body:
        """Read a post-command."""
        return self.fields(node, where, COMMAND, ("command",))


READERS: Mapping[str, Read] = {
    "label": _Reader.labels,
    "publicKey": _Reader.key,
    "sshKeyId": _Reader.key,
    "subGroupSize": _Reader.number,
    "rootDiskSize": _Reader.number,
    "timeoutMinutes": _Reader.number,
    "policyOnPartialFailure": _Reader.policy,
    "subGroups": _Reader.groups,
    "postCommand": _Reader.command,
    "command": _Reader.texts,
    "accessFrom": _Reader.texts,
}
"""The readers of values by field, in the names of the Tumblebug API; the other fields are texts."""
