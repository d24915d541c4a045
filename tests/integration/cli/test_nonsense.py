"""Random arguments: every command prints a message and an exit code, never a traceback."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.cli.cli_server import CliServer
from tests.long_forms import examples

texts = st.text(max_size=20) | st.sampled_from(["p1", "pump/p1", "a=b", "kind=pump", "idle", "1", "-1", "nan", "/", ""])
shapes = st.sampled_from(
    [
        ("get", "{}"),
        ("list", "--kind", "{}"),
        ("list", "--state", "{}", "--q", "{}"),
        ("list", "--label", "{}", "--parent", "{}"),
        ("create", "{}", "{}", "--action", "{}"),
        ("create", "pump", "{}", "--label", "{}", "--arg", "{}", "--fact", "{}"),
        ("delete", "{}", "--fact", "{}"),
        ("do", "{}", "{}", "--arg", "{}"),
        ("do", "tune", "--selector", "{}"),
        ("plan", "{}", "{}"),
        ("wait", "{}", "--timeout", "{}"),
        ("cancel", "{}"),
        ("history", "{}"),
        ("why", "{}"),
        ("watch", "{}", "--after", "0", "--count", "1"),
        ("token", "create", "{}", "--ns", "{}", "--role", "{}"),
        ("token", "revoke", "{}"),
        ("lanes", "set", "{}", "--capacity", "{}", "--group", "{}"),
        ("lanes", "group", "{}", "--lanes", "{}"),
        ("list", "--server", "{}"),
        ("list", "--token", "{}"),
        ("list", "-n", "{}"),
        ("list", "--data", "{}"),
    ]
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes, st.lists(texts, min_size=4, max_size=4), st.booleans())
def test_nonsense_gets_a_clear_answer(cli: CliServer, shape: tuple[str, ...], given: list[str], json: bool) -> None:
    filling = iter(given)
    words = [next(filling) if word == "{}" else word for word in shape]
    done = cli.run(*words, *(["--json"] if json else []))
    assert done.exit_code in (0, 1, 2, 3, 4), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.exit_code == 0 or done.output
