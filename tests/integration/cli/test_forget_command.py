"""`stateward forget`: records of objects whose plug-in is gone are removed, by their kind."""

import json

from stateward.store.changes import Changes
from tests.contract.samples import an_object
from tests.integration.cli.cli_server import CliServer

KIND = "acme.lamp"


def given(cli: CliServer, *names: str) -> None:
    """Give the server records of a kind that it does not know."""
    objects = [an_object(name, ns=cli.ns, kind=KIND, state="Active") for name in names]
    cli.ask(cli.engine.store.transact(lambda tx: tx.apply(Changes(objects=objects))))


def test_named_records_are_forgotten(cli: CliServer) -> None:
    given(cli, "www", "mail", "ns1")
    said = cli.run("forget", "www", f"{KIND}/mail", "--kind", KIND)
    assert (said.exit_code, said.output) == (0, "Removed the records of 2 acme.lamp objects.\n")
    assert [one["id"] for one in cli.json("list", "--kind", KIND)] == ["ns1"]
    assert cli.run("forget", "www", "--kind", KIND).exit_code != 0


def test_all_records_of_a_kind_are_forgotten(cli: CliServer) -> None:
    given(cli, "www", "mail")
    assert [one["id"] for one in json.loads(cli.run("forget", "--all", "--kind", KIND, "--json").output)] == [
        "mail",
        "www",
    ]
    assert cli.json("list") == []


def test_neither_without_a_name_nor_by_another_kind_is_anything_forgotten(cli: CliServer) -> None:
    given(cli, "www")
    cli.built("p1")
    for words, text in (
        (("--kind", KIND), "either named, or all of the kind"),
        (("www", "--all", "--kind", KIND), "either named, or all of the kind"),
        (("www", "--kind", "acme.lamps"), "the kind of 'www', acme.lamp"),
        (("p1", "--kind", "test.pump"), "knows the kind test.pump"),
        (("--all", "--kind", "acme.lamps"), "did you mean 'acme.lamp'?"),
    ):
        said = cli.run("forget", *words)
        assert said.exit_code != 0
        assert text in said.output
    assert cli.json("get", "www")["object"]["id"] == "www"
