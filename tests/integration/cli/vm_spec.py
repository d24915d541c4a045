"""The specs of a VM in a simulated region that every server knows, and of its MCI, for tests that need any object."""

import json
from pathlib import Path

VM = {
    "uid": "its own is given to it",
    "mci": "m",
    "group": "g",
    "connection": "aws-ap-northeast-2",
    "provider": "aws",
    "region": "ap-northeast-2",
    "spec": "aws+ap-northeast-2+t3.nano",
    "image": "ubuntu22.04",
    "csp_spec": "t3.nano",
    "csp_image": "ubuntu22.04",
}


MCI = {
    "name": "m",
    "uid": "its own is given to it",
    "groups": [{"name": "h", "size": 1, "spec": VM["spec"], "image": VM["image"]}],
    "hold": True,  # it creates no VMs itself
}


def with_spec(folder: Path, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command; one that creates the MCI `m` or a VM `m.NAME` gets a spec, in a file of the folder."""
    if words[:1] != ("create",):
        return words
    file = folder / "vm.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    if words[1] == "mci.mci/m":
        file.write_text(json.dumps(MCI))
        return (*words, "--spec", str(file))
    name = (words[1].partition("/")[2] or words[2]).removeprefix("m.")
    file.write_text(json.dumps({**VM, "name": name}))
    return (*words, "--parent", "m", "--spec", str(file))
