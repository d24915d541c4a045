"""The writer thread of SQLite: it survives errors of the file system, and if it ends, writes are refused."""

import asyncio
import os
import threading
from errno import EIO
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from stateward.store.errors import Unavailable
from stateward.store.sqlite import SqliteStore
from stateward.store.sqlite.shared_file import LockFile
from stateward.store.sqlite.writer import WriterThread
from tests.contract.samples import an_object
from tests.contract.store_calls import stored, write


async def test_an_error_of_the_lock_file_answers_the_write_and_does_not_end_the_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "stateward.db")
    await store.open()

    def fail(_: LockFile) -> bool:
        raise OSError(EIO, os.strerror(EIO))

    async with asyncio.timeout(30):
        with patch.object(LockFile, "is_undisturbed", fail):
            for name in ("a", "b"):
                await write(store, objects=[an_object(name)])
        await write(store, objects=[an_object("c")])
    assert (await stored(store, "b")).id == "b"
    assert "the writer of the database could not check its files" in caplog.text
    await store.close()


async def test_writes_are_refused_when_the_writer_thread_has_ended(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "stateward.db")
    await store.open()
    queued = WriterThread._queued

    def fail(thread: WriterThread, timeout_s: float) -> object:
        if threading.current_thread().name == "stateward-writer":
            raise MemoryError
        return queued(thread, timeout_s)

    with patch.object(WriterThread, "_queued", fail):
        async with asyncio.timeout(30):
            with pytest.raises(Unavailable):
                await write_without_end(store)
            with pytest.raises(Unavailable):
                await write(store, objects=[an_object("b")])
    await store.close()


async def write_without_end(store: SqliteStore) -> None:
    """Write until it fails: the thread may still be waiting in its former call."""
    for number in count():
        await write(store, objects=[an_object(f"a{number}")])
