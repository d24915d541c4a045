"""Objects as files describe them: apply, diff, edit."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stateward.lifecycle import USER
from stateward.server.routes.object_routes import replace_labels
from stateward.store.records import Key
from tests.integration.cli.cli_server import CliServer

FILE = """
kind: dns.record
name: www
spec: {address: 192.0.2.1, tags: [web, eu]}
labels: {app: shop}
---
kind: dns.record
name: mail
spec:
  address: 192.0.2.2
labels: {app: shop}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "records.yaml").write_text(FILE)
    return tmp_path / "records.yaml"


def results(told: list[dict[str, str]]) -> dict[str, str]:
    return {one["object"]: one["result"] for one in told}


def version(cli: CliServer, name: str) -> int:
    return int(cli.json("get", name)["object"]["version"])


async def set_label(cli: CliServer, name: str, label: str, value: str) -> None:
    """Set a label as a colleague does."""
    key, store = Key(cli.ns, name), cli.engine.store
    found = await store.reader.object(key)
    assert found is not None
    labels = {**msgspec.json.decode(found.labels), label: value}
    await store.transact(lambda tx: replace_labels(tx, cli.engine.kinds, key, labels, None, USER, "colleague"))


def test_a_second_run_says_unchanged_and_writes_nothing(cli: CliServer, file: Path) -> None:
    assert cli.run("diff", "-f", str(file)).exit_code == 1
    made = cli.json("apply", "-f", str(file), "--wait")
    assert results(made) == {"www": "created", "mail": "created"}
    assert made[0]["operation"]["status"] == "succeeded"
    before = version(cli, "www"), version(cli, "mail")
    assert results(cli.json("apply", "-f", str(file))) == {"www": "unchanged", "mail": "unchanged"}
    assert (version(cli, "www"), version(cli, "mail")) == before
    same = cli.run("diff", "-f", str(file))
    assert (same.exit_code, same.stdout) == (0, "")


def test_a_changed_document_updates_its_object_by_the_update_action(cli: CliServer, file: Path) -> None:
    cli.json("apply", "-f", str(file), "--wait")
    file.write_text(FILE.replace("tags: [web, eu]", "ttl: 60").replace("name: mail", "id: mail"))
    shown = cli.run("diff", "-f", str(file))
    assert shown.exit_code == 1
    assert "+  ttl: 60" in shown.stdout
    told = cli.run("apply", "-f", str(file), "--dry-run").stdout
    assert "would update" in told
    assert cli.json("get", "www")["object"]["spec"]["tags"] == ["web", "eu"]
    changed = cli.json("apply", "-f", str(file), "--wait")
    assert results(changed) == {"www": "updated", "mail": "unchanged"}
    assert changed[0]["operation"]["action"] == "change"
    spec = cli.json("get", "www")["object"]["spec"]
    assert (spec["ttl"], spec["tags"]) == (60, [])  # a field that the document has lost is lost
    assert results(cli.json("apply", "-f", str(file))) == {"www": "unchanged", "mail": "unchanged"}


def test_what_somebody_else_has_changed_is_made_as_described_again(cli: CliServer, file: Path) -> None:
    cli.json("apply", "-f", str(file), "--wait")
    cli.json("do", "change", "mail", "--set", "ttl=77", "--wait")  # an argument, and not the spec
    assert results(cli.json("apply", "-f", str(file))) == {"www": "unchanged", "mail": "unchanged"}
    act = cli.engine.act(cli.ns, "mail", "change", spec={"address": "192.0.2.9"})
    cli.ask(act)
    cli.run("wait", "mail")
    assert results(cli.json("apply", "-f", str(file), "--wait")) == {"www": "unchanged", "mail": "updated"}
    assert cli.json("get", "mail")["object"]["spec"]["address"] == "192.0.2.2"


def test_labels_are_added_without_an_operation(cli: CliServer, file: Path) -> None:
    cli.json("apply", "-f", str(file), "--wait")
    file.write_text(FILE.replace("{app: shop}", "{app: shop, tier: web}", 1))
    told = cli.json("apply", "-f", str(file))
    assert results(told) == {"www": "labelled", "mail": "unchanged"}
    assert told[0]["operation"] is None
    assert cli.json("get", "www")["object"]["labels"]["tier"] == "web"


def test_a_secret_that_nobody_sees_is_applied_once(cli: CliServer) -> None:
    text = "{kind: record, id: a, spec: {address: 1.1.1.1, login: {user: a, password: hush-hush}}}"
    cli.json("apply", "-f", "-", "--wait", stdin=text)
    assert results(cli.json("apply", "-f", "-", stdin=text)) == {"a": "unchanged"}
    masked = cli.run("apply", "-f", "-", stdin=text.replace("hush-hush", "'***'"))
    assert masked.exit_code == 2
    assert "line 1: spec.login.password: '***' must be a value" in masked.stderr


def test_a_kind_without_an_update_action_is_refused_before_anything_is_changed(cli: CliServer) -> None:
    cli.built("p1")
    text = "{kind: pump, id: p1, spec: {size: 3}}\n---\n{kind: record, id: a, spec: {address: 1.1.1.1}}"
    done = cli.run("apply", "-f", "-", stdin=text)
    assert done.exit_code == 2
    assert "nothing was changed: -, line 1: spec: must be as it is: test.pump has no action that updates" in done.stderr
    assert [one["id"] for one in cli.json("list")] == ["p1"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FILE.replace("address: 192.0.2.2", "adress: 192.0.2.2"), "records.yaml, line 10: 'adress'; did you mean"),
        (FILE.replace("  address: 192.0.2.2", "  ttl: 5"), "line 9: spec.address: must be given"),
        (
            FILE.replace("spec: {address: 192.0.2.1, tags: [web, eu]}", "spec: 5"),
            "line 4: spec: must be an object or null, not a whole number",
        ),
        (FILE.replace("name: mail", "name: www"), "line 3 describes it, too"),
        (FILE + "---\nkind: [", "records.yaml, line"),
        (FILE.replace("labels: {app: shop}", "labels: {stateward.apply: x}"), "left out: apply sets it"),
        (
            FILE.replace("name: mail", "name: mail\nparent: www").replace("name: www", "name: www\nparent: mail"),
            "part of",
        ),
    ],
)
def test_one_bad_document_refuses_the_whole(cli: CliServer, file: Path, text: str, why: str) -> None:
    file.write_text(text)
    for verb in ("apply", "diff"):
        done = cli.run(verb, "-f", str(file))
        assert done.exit_code == 2, done.output
        assert why in done.stderr
    assert cli.json("list") == []


def test_a_refused_update_refuses_the_whole(cli: CliServer, file: Path) -> None:
    cli.json("apply", "-f", str(file), "--wait")
    file.write_text(
        FILE.replace("192.0.2.1", "192.0.2.8").replace("address: 192.0.2.2", "address: 192.0.2.2\n  ttl: 0")
    )
    done = cli.run("apply", "-f", str(file))
    assert done.exit_code == 2
    assert "line 11: mail: spec.ttl: must be at least 1" in done.stderr
    assert cli.json("get", "www")["object"]["spec"]["address"] == "192.0.2.1"


def test_a_refused_creation_is_told_with_its_file_and_line(cli: CliServer, file: Path) -> None:
    file.write_text(FILE.replace("address: 192.0.2.2", "address: 192.0.2.2\n  ttl: 0"))
    for words in (["--dry-run"], []):
        done = cli.run("apply", "-f", str(file), *words)
        assert (done.exit_code, f"{file}, line 11: mail: spec.ttl: must be at least 1" in done.stderr) == (2, True)
    assert cli.json("list") == []


def test_what_is_protected_is_not_pruned(cli: CliServer, file: Path) -> None:
    cli.json("apply", "-f", str(file), "--wait")
    assert cli.run("protect", "mail").exit_code == 0
    file.write_text(FILE.partition("---")[0])
    words = ("apply", "-f", str(file), "--prune", "-l", "app=shop")
    planned = cli.run(*words, "--dry-run")
    assert (planned.exit_code, "would be refused" in planned.stdout) == (1, True)
    done = cli.run(*words)
    assert (done.exit_code, "stateward unprotect mail" in done.stdout) == (1, True)
    for more, result in ((("--dry-run",), "would_be_refused"), ((), "refused")):
        kept, refused = cli.json(*words, *more, code=1)
        assert (kept["result"], kept["why"], refused["result"]) == ("unchanged", None, result)
        assert "stateward unprotect mail" in refused["why"]
    assert [one["id"] for one in cli.json("list")] == ["mail", "www"]


def test_pruning_removes_what_apply_has_made_and_nothing_else(cli: CliServer, file: Path) -> None:
    cli.json("apply", "-f", str(file), "--wait")
    cli.json("create", "dns.record", "foreign", "--set", "address=1.1.1.1", "--label", "app=shop", "--wait")
    file.write_text(FILE.partition("---")[0])
    words = ("apply", "-f", str(file), "--prune", "-l", "app=shop")
    assert results(cli.json(*words, "--dry-run")) == {"www": "unchanged", "mail": "would_remove"}
    assert "-kind: dns.record" in cli.run("diff", *words[1:]).stdout
    assert len(cli.json("list")) == 3
    assert results(cli.json(*words, "--wait")) == {"www": "unchanged", "mail": "removed"}
    assert [one["id"] for one in cli.json("list")] == ["foreign", "www"]
    alone = cli.run("apply", "-f", str(file), "--prune")
    assert (alone.exit_code, "given with --label" in alone.stderr) == (2, True)
    unlabelled = cli.run("apply", "-f", str(file), "--prune", "-l", "app=other")
    assert (unlabelled.exit_code, "'other', as in --label" in unlabelled.stderr) == (2, True)


@contextmanager
def every_call(change: Callable[[Any, str, Any], None]) -> Iterator[None]:
    """Call a function with the path, the method and the body of each request before it is sent."""
    from stateward.client.http import HttpConnection

    send = HttpConnection.call

    def changed(self: HttpConnection, answer: object, method: str, path: object, **more: Any) -> object:
        change(path, method, more.get("body"))
        return send(self, answer, method, path, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpConnection, "call", changed)
        yield


def test_an_apply_that_loses_its_server_tells_what_it_has_done(cli: CliServer, file: Path) -> None:
    from stateward.client.errors import Unreachable

    def fail(path: object, method: str, body: Any) -> None:
        if method == "POST" and str(path).endswith("/objects") and body["id"] == "mail":
            raise Unreachable("http://there", "it was stopped")

    with every_call(fail):
        done = cli.run("apply", "-f", str(file))
        assert done.exit_code == 3, done.output
        assert [line.split()[:3:2] for line in done.stdout.splitlines() if line.startswith("www")] == [
            ["www", "created"]
        ]
        assert "mail" not in done.stdout
        assert "no server answers at http://there: it was stopped" in done.stderr
        told = cli.run("apply", "-f", str(file), "--json")
    first, _ = json.JSONDecoder().raw_decode(told.stdout)
    assert (results(first), told.exit_code) == ({"www": "unchanged"}, 3)
    assert '"error": "Unreachable"' in told.stdout


def test_an_apply_that_ends_before_the_new_spec_is_accepted_is_done_by_the_next_one(cli: CliServer, file: Path) -> None:
    from stateward.client.errors import Unreachable

    def fail(path: object, method: str, body: Any) -> None:
        if method == "POST" and str(path).endswith("/actions/change"):
            raise Unreachable("http://there", "it was stopped")

    cli.json("apply", "-f", str(file), "--wait")
    file.write_text(FILE.replace(", tags: [web, eu]", ""))  # what is left is a part of what is stored
    with every_call(fail):
        assert cli.run("apply", "-f", str(file)).exit_code == 3
    assert results(cli.json("apply", "-f", str(file), "--wait")) == {"www": "updated", "mail": "unchanged"}
    assert cli.json("get", "www")["object"]["spec"]["tags"] == []


def test_a_label_that_somebody_sets_during_an_apply_is_kept(cli: CliServer, file: Path) -> None:
    def label(path: object, method: str, body: Any) -> None:
        if method == "PUT" and str(path).endswith("/labels") and "team" not in seen:
            seen.append("team")
            cli.ask(set_label(cli, "www", "team", "blue"))

    seen = list[str]()
    cli.json("apply", "-f", str(file), "--wait")
    file.write_text(FILE.replace("{app: shop}", "{app: shop, tier: web}", 1).replace("tags: [web, eu]", "ttl: 60"))
    with every_call(label):
        assert results(cli.json("apply", "-f", str(file), "--wait")) == {"www": "updated", "mail": "unchanged"}
    labels = cli.json("get", "www")["object"]["labels"]
    assert (labels["team"], labels["tier"]) == ("blue", "web")
    assert results(cli.json("apply", "-f", str(file))) == {"www": "unchanged", "mail": "unchanged"}


def test_an_object_that_changes_after_it_was_listed_is_not_pruned(cli: CliServer, file: Path) -> None:
    def take_over(path: object, method: str, body: Any) -> None:
        if method == "POST" and str(path).endswith("/actions/delete"):
            cli.ask(set_label(cli, "mail", "app", "other"))

    cli.json("apply", "-f", str(file), "--wait")
    file.write_text(FILE.partition("---")[0])
    with every_call(take_over):
        kept, refused = cli.json("apply", "-f", str(file), "--prune", "-l", "app=shop", code=1)
    assert (kept["result"], refused["result"], refused["problem"]["status"]) == ("unchanged", "refused", 412)
    assert [one["id"] for one in cli.json("list")] == ["mail", "www"]


def test_an_interrupted_command_names_its_operations_and_how_to_follow_them(cli: CliServer, file: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    cli.built("p1")
    cli.do(cli.plant.hold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stateward.client.action_requests._following", interrupt)
        applied = cli.run("apply", "-f", str(file), "--wait")
        acted = cli.run("do", "tune", "p1", "--wait")
    for done, names in ((applied, ("www", "mail")), (acted, ("p1",))):
        assert done.exit_code == 130, done.output
        for name in names:
            op = cli.json("operations", "--object", name)[0]["id"]
            assert f"stateward logs -f {op} -n {cli.ns}" in done.stderr
    assert applied.stdout.count("created") == 2


def test_a_parent_is_shown_by_diff_and_cannot_be_changed(cli: CliServer) -> None:
    text = "{kind: record, id: part, parent: www, spec: {address: 1.1.1.1}}"
    assert "+parent: www" in cli.run("diff", "-f", "-", stdin=text).stdout
    cli.json("apply", "-f", "-", "--wait", stdin=text.replace("parent: www, ", ""))
    for verb in ("diff", "apply"):
        done = cli.run(verb, "-f", "-", stdin=text)
        assert done.exit_code == 2
        assert "-, line 1: parent: 'www' must be left out: part has none; the parent of an" in done.stderr


def test_objects_that_somebody_else_creates_meanwhile_are_compared(cli: CliServer, file: Path) -> None:
    cli.json("apply", "-f", str(file), "--wait")
    file.write_text(FILE.replace("address: 192.0.2.2", "address: 192.0.2.3"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stateward.cli.commands.apply._read_objects", lambda *_: {})
        assert results(cli.json("apply", "-f", str(file), "--wait")) == {"www": "unchanged", "mail": "updated"}
    assert cli.json("get", "mail")["object"]["spec"]["address"] == "192.0.2.3"


def test_a_document_that_the_server_does_not_read_is_named_with_its_line(cli: CliServer, file: Path) -> None:
    from stateward.client.errors import ApiError

    def limit(path: object, method: str, body: Any) -> None:
        if method == "POST" and len(json.dumps(body)) > 1000:
            raise ApiError(413, "too_large", "Request Entity Too Large", {})

    file.write_text(
        FILE + "".join(f"---\n{{kind: record, id: r{one}, spec: {{address: 1.1.1.1}}}}\n" for one in range(9))
    )
    with every_call(limit):
        assert set(results(cli.json("apply", "-f", str(file), "--dry-run")).values()) == {"would_create"}
        file.write_text(FILE.replace("labels: {app: shop}", f"labels: {{app: {'x' * 1000}}}", 1))
        done = cli.run("apply", "-f", str(file))
    assert (done.exit_code, f"{file}, line 3: www: Request Entity Too Large" in done.stderr) == (2, True), done.stderr
    assert cli.json("list") == []


def test_many_documents_in_a_folder_need_few_reads(cli: CliServer, tmp_path: Path) -> None:
    for number in range(3):
        names = [f"r{number}-{one}" for one in range(20)]
        text = json.dumps([{"kind": "record", "id": name, "spec": {"address": "1.1.1.1"}} for name in names])
        (tmp_path / f"{number}.json").write_text(text)
    (tmp_path / "README.md").write_text("not a document: [")
    assert len(cli.json("apply", "-f", str(tmp_path))) == 60
    calls: list[str] = []
    with every_call(lambda _path, method, _body: calls.append(method)):
        assert set(results(cli.json("apply", "-f", str(tmp_path))).values()) == {"unchanged"}
    assert calls == ["GET", "GET"]  # the kinds, and one page of records


def test_documents_name_their_namespaces(cli: CliServer) -> None:
    elsewhere = f"{cli.ns}-x"
    text = f"{{kind: record, id: a, namespace: {elsewhere}, spec: {{address: 1.1.1.1}}}}"
    assert cli.json("apply", "-f", "-", "--wait", stdin=text)[0]["namespace"] == elsewhere
    assert [one["id"] for one in cli.json("list", "-n", elsewhere)] == ["a"]


def editor(tmp_path: Path, script: str) -> dict[str, str]:
    (tmp_path / "editor").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "editor").chmod(0o755)
    return {"EDITOR": str(tmp_path / "editor"), "VISUAL": "", "TMPDIR": str(tmp_path)}


def test_an_object_is_edited(cli: CliServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.json("create", "dns.record", "www", "--set", "address=1.1.1.1", "--label", "a=b", "--wait")
    for name, value in editor(tmp_path, 'sed -i "s/ttl: 300/ttl: 60/; s/a: b/a: c/" "$1"').items():
        monkeypatch.setenv(name, value)
    assert cli.run("edit", "www", "--wait").exit_code == 0
    found = cli.json("get", "www")["object"]
    assert (found["spec"]["ttl"], found["labels"]) == (60, {"a": "c"})
    monkeypatch.setenv("EDITOR", "true")
    assert "Nothing was changed" in cli.run("edit", "www").stderr
    monkeypatch.setenv("EDITOR", "")
    done = cli.run("edit", "www")
    assert (done.exit_code, "apply -f FILE" in done.stderr) == (2, True), done.stderr


def test_an_edit_that_is_not_accepted_is_kept(cli: CliServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    cli.json("create", "dns.record", "www", "--set", "address=1.1.1.1", "--wait")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = f"curl -sf -X PUT -H 'Authorization: Bearer {cli.token}' -H 'Content-Type: application/json'"
    race = f'{other} -d \'{{"labels": {{"x": "y"}}}}\' {cli.url}/api/v1/ns/{cli.ns}/objects/www/labels > /dev/null'
    for script, why, code in (
        (f'{race}; sed -i "s/ttl: 300/ttl: 60/" "$1"', "is at version", 1),
        ('sed -i "s/ttl: 300/tll: 60/" "$1"', "did you mean 'ttl'?", 2),
        ('sed -i "s/name: www/name: other/" "$1"', "as before", 2),
        ("exit 3", "it ended with 3", 2),
    ):
        for name, value in editor(tmp_path, script).items():
            monkeypatch.setenv(name, value)
        done = cli.run("edit", "www")
        assert (done.exit_code, why in done.stderr) == (code, True), done.stderr
        kept = Path(done.stderr.partition("The text is kept in ")[2].splitlines()[0])
        assert "address: 1.1.1.1" in kept.read_text()
    assert cli.json("get", "www")["object"]["spec"]["ttl"] == 300
