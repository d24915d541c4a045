"""The registry of domains, and the import contracts that have to list what it lists."""

from configparser import ConfigParser
from pathlib import Path

from stateward.plugin.registry import installed

CONTRACTS = Path(__file__).parents[3] / ".importlinter"


def test_the_contract_of_independence_names_every_domain() -> None:
    contracts = ConfigParser()
    contracts.read(CONTRACTS)
    named = contracts["importlinter:contract:domains"]["modules"].split()
    assert sorted(named) == sorted(f"stateward.domains.{name}" for name in installed().names)


def test_the_examples_of_all_domains_are_found() -> None:
    assert {"NewCloudlet", "NewMachine", "NewLease", "NewSystem"} <= installed().examples.keys()
