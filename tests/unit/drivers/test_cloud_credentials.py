"""Files with credentials: what every driver of a cloud refuses to read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.credential_fields import MAX_FILE_BYTES, CredentialMissing
from stateward.drivers.aws.settings import read_credential
from stateward.drivers.azure.settings import read_principal
from stateward.drivers.gcp.settings import read_service_account
from stateward.drivers.openstack.settings import read_login

READERS = [read_credential, read_principal, read_service_account, read_login]


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_or_a_very_large_file_in_place_of_a_credential_stops_nobody(
    tmp_path: Path, read: Callable[[str], object]
) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    for path in (pipe, large):
        with pytest.raises(CredentialMissing, match="cannot be read"):
            read(f"file:{path}")
