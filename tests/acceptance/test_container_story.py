"""The containers of docs/systems.md: its definition and its commands, on a real server with a real Podman."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_docs_stories import Saved, Terminal, Typed, read_page, steps
from tests.containers import PodmanService, busybox_archive
from tests.kept_ports import keep_port

PAGE = "docs/systems.md#The container backend"
SOCKET, ADDRESS, IMAGE = "unix:///run/podman/podman.sock", "18420", "registry.example/shop/web:7"
FILES = {"bin/serve": b"#!/bin/sh\nexec httpd -f -p $PORT -h /www\n", "www/health": b"all is well\n"}


def web_archive() -> bytes:
    """Return a file system with the program and the page that the definition speaks of."""
    file = io.BytesIO(busybox_archive())
    with tarfile.open(fileobj=file, mode="a") as archive:
        for name, content in FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, "systems")
    yield terminal
    terminal.close()


@pytest.fixture
def image(podman: PodmanService) -> None:
    podman.import_image(web_archive(), IMAGE)


@pytest.mark.usefixtures("image")
def test_the_story_of_the_containers_can_be_lived(terminal: Terminal, podman: PodmanService, tmp_path: Path) -> None:
    port = keep_port()
    page = read_page(PAGE).replace(SOCKET, podman.address).replace(ADDRESS, str(port))
    printed = ""
    for one in steps(page):
        if isinstance(one, Saved):
            one.save(tmp_path)
        else:
            printed = terminal.type(one)
    assert printed == "all is well\n"
    assert "/web is stable, 2 of 2 ready" in terminal.type(Typed("stateward system status shop", []))
    terminal.type(Typed("stateward system delete shop --wait", []))
    assert podman.run("ps", "--all", "--quiet", "--filter", "label=stateward.systems.system=shop") == ""
