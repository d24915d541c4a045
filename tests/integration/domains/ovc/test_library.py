"""Images from files: one that the library does not have is refused before anything is written."""

from pathlib import Path

import pytest

from stateward.domains.ovc.lifecycle import IMAGE
from stateward.domains.ovc.model import ImageSpec
from stateward.errors import BadInput
from stateward.store import open_store
from stateward.store.filters import Page, Selector
from tests.integration.domains.ovc.ovc_harness import ANN, FILES, Cloud, open_cloud


async def _names(cloud: Cloud) -> list[str]:
    found = await cloud.engine.store.reader.list_objects(Selector(cloud.ns, IMAGE.kind), Page(None, 10))
    return [one.id for one in found]


@pytest.mark.parametrize("source", ["none.qcow2", "notes.txt"])
async def test_an_image_whose_file_is_not_in_the_library_is_refused_at_once(tmp_path: Path, source: str) -> None:
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, FILES) as cloud:
        (tmp_path / "ovc" / "vault" / "library" / "notes.txt").write_text("no image")
        cloud.account = await cloud.new_account()
        with pytest.raises(BadInput, match="the library has no image") as refused:
            await cloud.service.create(cloud.ns, ImageSpec("lost", cloud.account, source), ANN)
        assert (refused.value.field, await _names(cloud)) == ("source", [])
