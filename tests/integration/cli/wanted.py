"""A VM to ask for where any object will do: at a simulated region that every server knows."""

import json
from pathlib import Path

VM = {
    "name": "m1",
    "uid": "uid-m1",
    "mci": "m",
    "group": "g",
    "connection": "aws-ap-northeast-2",
    "provider": "aws",
    "region": "ap-northeast-2",
    "spec": "s",
    "image": "i",
    "csp_spec": "t3.nano",
    "csp_image": "ubuntu22.04",
}


def with_spec(folder: Path, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command; one that creates a VM says what is wanted, by a file in a folder."""
    if words[:1] != ("create",):
        return words
    file = folder / "vm.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**VM, "uid": f"uid-{words[-1]}-{words[1]}"}))
    return (*words, "--spec", str(file))
