"""All container engines under one contract."""

import pytest

pytest.register_assert_rewrite("tests.contract.containers.engine_contract")
