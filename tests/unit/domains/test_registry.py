"""The registry of domains, and the import contracts that have to list what it lists."""

from configparser import ConfigParser
from pathlib import Path

from stateward.domains.registry import DOMAINS, load_examples

CONTRACTS = Path(__file__).parents[3] / ".importlinter"


def test_the_contract_of_independence_names_every_domain() -> None:
    contracts = ConfigParser()
    contracts.read(CONTRACTS)
    named = contracts["importlinter:contract:domains"]["modules"].split()
    assert sorted(named) == sorted(domain.__name__ for domain in DOMAINS)


def test_the_examples_of_all_domains_are_found() -> None:
    assert {"NewCloudlet", "NewMachine", "NewLease", "NewSystem"} <= load_examples().keys()
