"""How the command line shows the spec of an app."""

from stateward.domains.edge.cli.instance_requests import spec_facts


def test_the_parts_of_an_app_are_shown_one_by_one_with_their_copies() -> None:
    web = {"name": "web", "image": "web:1", "count": 3, "volumes": [{"path": "/d", "name": "data"}]}
    found = spec_facts({"app": "shop", "command": "", "count": 1, "parts": [web, {"command": ["sleep", "1 0"]}]})
    assert found == [
        ("app", "shop"),
        ("part web", '3 copies, web:1, volumes [{"path":"/d","name":"data"}]'),
        ("part main", "1 copy, sleep '1 0'"),
    ]


def test_an_app_without_parts_is_shown_in_its_short_form() -> None:
    assert spec_facts({"command": "serve", "count": 2, "parts": []}) == [("command", "serve"), ("count", "2")]
