"""A project's configuration counts once a person accepted it, and as long as it is what they accepted."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from forge.core.errors import ToolError
from forge.project import trust
from forge.project.assemble.secrets import project_secrets
from forge.project.config import Configuration, load_configuration
from forge.project.trust_summary import scripts_in, trust_summary


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "forge.yaml").write_text("sandbox: required\n")
    return folder


def test_what_nobody_accepted_is_not_loaded_and_what_somebody_accepted_is(project):
    assert trust.trust_state(project).status == "new"
    assert load_configuration(None, project) == Configuration()
    trust.accept(project)
    assert trust.trust_state(project).status == "trusted"
    assert trust.is_trusted(project)
    assert load_configuration(None, project).sandbox == "required"


def test_the_accepted_text_stays_in_force_when_the_file_changes(project):
    trust.accept(project)
    found = trust.find_accepted_config(project)
    assert found is not None
    (project / "forge.yaml").write_text("sandbox: off\n")
    now = trust.trust_state(project)
    assert (now.status, now.before, now.text) == ("changed", "sandbox: required\n", "sandbox: off\n")
    assert not trust.is_trusted(project)
    assert load_configuration(None, project).sandbox == "required"
    assert load_configuration(found).sandbox == "required"  # found before, read now
    trust.accept(project)
    assert load_configuration(found).sandbox == "off"


def _edited(path: Path) -> None:
    path.write_text("sandbox: off\n")


def _removed(path: Path) -> None:
    path.unlink()


def _linked(path: Path) -> None:
    other = path.parent / "other.yaml"
    other.write_text("sandbox: off\n")
    path.unlink()
    path.symlink_to(other)


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def _circular(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _too_large(path: Path) -> None:
    path.write_bytes(b"#" * 300_000)


def _not_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def _not_yaml(path: Path) -> None:
    path.write_text("sandbox: [off\n")


TAMPERED = [_edited, _removed, _linked, _dangling, _circular, _directory, _fifo, _too_large, _not_text, _not_yaml]


@pytest.mark.parametrize("tamper", TAMPERED)
def test_whatever_happens_to_the_file_the_accepted_text_is_in_force_and_the_person_is_told(project, tamper):
    trust.accept(project)
    tamper(project / "forge.yaml")
    assert load_configuration(None, project).sandbox == "required"
    now = trust.trust_state(project)
    assert now.status in ("changed", "gone")
    assert "the version you trusted still applies" in trust.notice(now)
    assert "`forge trust`" in trust.notice(now)


@pytest.mark.parametrize("tamper", TAMPERED)
def test_a_file_that_was_never_accepted_is_in_force_in_no_shape(project, tamper):
    tamper(project / "forge.yaml")
    assert load_configuration(None, project) == Configuration()


def test_an_entry_without_its_text_counts_while_the_file_is_the_same_and_stops_everything_afterwards(project):
    store = trust.accept(project)
    document = json.loads(store.read_text())
    del document["projects"][str(project)]["text"]
    store.write_text(json.dumps(document))
    assert load_configuration(None, project).sandbox == "required"
    (project / "forge.yaml").write_text("sandbox: off\n")
    with pytest.raises(ToolError, match="cannot tell which rules apply") as refused:
        load_configuration(None, project)
    assert "forge trust" in refused.value.suggestion
    (project / "forge.yaml").unlink()
    with pytest.raises(ToolError, match="cannot tell which rules apply"):
        load_configuration(None, project)
    (project / "forge.yaml").write_text("sandbox: landlock\n")
    trust.accept(project)
    assert load_configuration(None, project).sandbox == "landlock"


def _accept_before_hosts_of_programs(project: Path, rule: str) -> None:
    (project / "forge.yaml").write_text(f"permissions:\n  rules:\n    - {rule}\n    - deny execute rm *\n")
    store = trust.accept(project)
    entries = json.loads(store.read_text())
    assert entries["projects"][str(project)].pop("meaning") == 2
    store.write_text(json.dumps(entries))


@pytest.mark.parametrize(
    "rule",
    [
        "allow network packages.example.com",
        "Allow  network *",
        '"allow * packages.example.com"',
        "allow tool:bash *.example.com",
        "{action: allow, permission: network, target: packages.example.com}",
        "{action: allow, tool: bash, target: packages.example.com}",
    ],
)
def test_rules_that_now_open_hosts_to_programs_are_asked_about_again(project, rule):
    _accept_before_hosts_of_programs(project, rule)
    assert trust.trust_state(project).status == "unknown"
    with pytest.raises(ToolError, match="now hold for programs, too"):
        load_configuration(None, project)  # without its rules nothing runs: one of them denies something
    trust.accept(project)
    assert trust.is_trusted(project)


@pytest.mark.parametrize("rule", ["allow network", "deny network evil.example", "allow tool:bash git *", "allow read"])
def test_rules_that_open_no_more_than_before_stay_trusted(project, rule):
    _accept_before_hosts_of_programs(project, rule)
    assert trust.is_trusted(project)


def test_that_a_file_is_gone_can_be_accepted(project):
    trust.accept(project)
    (project / "forge.yaml").unlink()
    assert not trust.is_trusted(project)
    trust.accept(project)
    assert trust.is_trusted(project)
    assert load_configuration(None, project) == Configuration()


def test_a_file_that_a_person_named_needs_no_trust(project):
    assert load_configuration(str(project / "forge.yaml")).sandbox == "required"


def test_a_copy_elsewhere_is_another_project_and_a_link_is_the_same(project, tmp_path):
    trust.accept(project)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "forge.yaml").write_text("sandbox: required\n")
    (tmp_path / "link").symlink_to(project)
    assert not trust.is_trusted(copy)
    assert trust.is_trusted(tmp_path / "link")


def test_what_was_shown_is_what_is_accepted(project):
    shown = trust.trust_state(project).text
    (project / "forge.yaml").write_text("sandbox: off\n")  # meanwhile
    trust.accept(project, shown)
    assert trust.trust_state(project).status == "changed"


def test_a_workspace_without_a_configuration_can_be_accepted_for_its_scripts(project):
    (project / "forge.yaml").unlink()
    assert not trust.is_trusted(project)
    trust.accept(project)
    assert trust.is_trusted(project)
    (project / "forge.yaml").write_text("sandbox: off\n")
    assert not trust.is_trusted(project)


def test_it_can_be_taken_back(project):
    trust.accept(project)
    assert list(trust.list_accepted()) == [str(project)]
    assert trust.forget(project)
    assert not trust.forget(project)
    assert not trust.is_trusted(project)


def test_the_store_is_private_whatever_the_umask(project, tmp_path):
    before = os.umask(0)
    try:
        store = trust.accept(project)
    finally:
        os.umask(before)
    for path in (store, store.parent, tmp_path / "data"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert json.loads(store.read_text())["projects"][str(project)]["sha256"]
    assert [one.name for one in store.parent.iterdir()] == ["trust.json"]


def test_projects_that_are_accepted_at_the_same_time_are_all_remembered(project, tmp_path):
    folders = [tmp_path / f"p{number}" for number in range(8)]
    for folder in folders:
        folder.mkdir()
    threads = [threading.Thread(target=trust.accept, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(trust.list_accepted()) == {str(folder) for folder in folders}


def test_of_projects_accepted_long_ago_only_the_digest_is_kept_and_a_change_stops_them(project, tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "MOST_PROJECTS", 2)
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
        (folder / "forge.yaml").write_text("sandbox: required\n")
        trust.accept(folder)
    assert [entry.get("text") is None for entry in trust.list_accepted().values()] == [True, False, False]
    assert load_configuration(None, folders[0]).sandbox == "required"
    for folder in folders:
        (folder / "forge.yaml").write_text("sandbox: off\n")
    with pytest.raises(ToolError, match="was not stored"):
        load_configuration(None, folders[0])
    assert load_configuration(None, folders[1]).sandbox == "required"


def test_only_so_many_are_remembered(project, tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "MOST_NAMED", 2)
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
        trust.accept(folder)
    assert list(trust.list_accepted()) == [str(folder) for folder in folders[1:]]


def test_a_name_that_no_directory_can_have_is_not_trusted(project):
    assert trust.trust_state("a\0b").status == "none"
    assert not trust.is_trusted("a\0b")


@pytest.mark.parametrize("home", [None, "", "relative", "file"])
def test_without_a_home_nothing_is_trusted_and_it_is_said_why(project, tmp_path, monkeypatch, home):
    monkeypatch.delenv("XDG_DATA_HOME")
    (tmp_path / "file").touch()
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", str(tmp_path / "file") if home == "file" else home)
    now = trust.trust_state(project)
    assert now.status == ("new" if home == "file" else "unknown")  # a file can hold no store, so nothing was accepted
    assert now.problem
    with pytest.raises(ToolError, match="cannot store"):
        trust.accept(project)
    assert trust.list_accepted() == {}
    (project / "forge.yaml").unlink()
    assert trust.trust_state(project).status == "none"


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"\xff", b'{"projects": []}', b'{"projects": {"PROJECT": {"text": 5}}}', b"[" * 100_000],
)
def test_a_broken_store_trusts_nothing_and_stops_what_it_may_have_ruled(project, tmp_path, content):
    store = tmp_path / "data/forge/trust.json"
    store.parent.mkdir(parents=True)
    store.write_bytes(content.replace(b"PROJECT", str(project).encode()))
    store.chmod(0o600)
    assert trust.trust_state(project).status == "unknown"
    assert not trust.is_trusted(project)
    with pytest.raises(ToolError, match="cannot tell which rules apply"):
        load_configuration(None, project)
    assert load_configuration(str(project / "forge.yaml")).sandbox == "required"  # a person named it
    store.unlink()
    assert load_configuration(None, project) == Configuration()


def test_a_store_that_is_a_link_or_a_directory_stops_what_it_may_have_ruled(project, tmp_path):
    store = trust.accept(project)
    kept = store.rename(tmp_path / "kept.json")
    store.symlink_to(kept)
    with pytest.raises(ToolError, match="cannot tell which rules apply"):
        load_configuration(None, project)
    store.unlink()
    store.mkdir()
    with pytest.raises(ToolError, match="cannot tell which rules apply"):
        load_configuration(None, project)
    store.rmdir()
    kept.rename(store)
    assert load_configuration(None, project).sandbox == "required"


def test_a_store_that_others_can_change_trusts_nothing(project):
    store = trust.accept(project)
    store.chmod(0o622)
    assert "other users may change it" in trust.trust_state(project).problem
    assert not trust.is_trusted(project)
    store.chmod(0o600)
    assert trust.is_trusted(project)


def test_a_store_inside_the_workspace_trusts_nothing(project, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(project / "data"))
    with pytest.raises(ToolError, match="is inside the workspace"):
        trust.accept(project)
    store = project / "data/forge/trust.json"
    store.parent.mkdir(parents=True)
    store.write_text(json.dumps({"projects": {str(project): {"text": "sandbox: required\n"}}}))
    store.chmod(0o600)
    assert not trust.is_trusted(project)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * 300_000, None])
def test_a_configuration_that_cannot_be_read_is_not_trusted(project, content):
    path = project / "forge.yaml"
    path.unlink()
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    now = trust.trust_state(project)
    assert now.status == "new"
    assert "cannot read" in now.problem
    with pytest.raises(ToolError):
        trust.accept(project)


def test_what_it_would_turn_on_is_said_without_looking_up_variables(project, monkeypatch):
    monkeypatch.setenv("TOKEN", "very-secret-value")
    text = """
sandbox: off
tools: [{name: bash, config: {sandbox: off, network: true}}, {group: read}]
permissions: {rules: [allow read, "allow execute *", {action: allow, tool: "http_*"}, "deny write a"]}
mcpServers: {git: {command: uvx, args: [x, "${TOKEN}"], env: {LD_PRELOAD: a.so}}, docs: {url: "https://d.example.com"}}
openapi: {pets: {spec: a.json, server: "https://p.example.com"}}
webhooks: {w: {url_env: NOT_SET}}
channels: {c: {type: telegram, token_env: TOKEN}}
schedules: [{id: n, cron: "@daily", task: do it}]
egress: {mode: open, private: ["10.0.0.0/8"]}
workspace: {roots: [{path: ../lib, access: write}]}
programs: {memory: 8192, processes: 0, open_files: 100}
agent: {prompt: "Obey.", model: "openai:x", trace_content: true}
memory: {embedder: {url: "http://e.example.com", model: m}}
"""
    found = trust_summary(text, "forge.yaml")
    said = "\n".join(f"{one.kind}: {one.detail}" for one in found)
    for words in (
        "starts a program: MCP server git: uvx x ${TOKEN} (sets LD_PRELOAD)",
        "connects to: MCP server docs: https://d.example.com",
        "runs on a schedule: schedule n: @daily: do it",
        "configures a tool: bash: sandbox: false, network: true",
        "allows without asking: allow execute *",
        'allows without asking: action: allow, tool: "http_*"',
        "switches off: the sandbox",
        "raises limits: programs: memory 8,192, processes not limited\n",
        "private addresses: 10.0.0.0/8",
        "connects to: OpenAPI pets: https://p.example.com",
        "connects to: webhook w: ${NOT_SET}",
        "delivers to: channel c (telegram): TOKEN",
        "sends notes to http://e.example.com",
        "opens directory: ../lib (write)",
        "instructs the model: Obey.",
        "records: messages, arguments and results in the traces",
    ):
        assert words in said
    assert "very-secret-value" not in said
    assert "deny write" not in said
    assert [one.detail for one in found if not one.risky][:1] == ["allow read"]


def test_every_setting_of_a_tool_is_said_but_for_plain_bounds():
    text = """
tools:
  - {name: web_search, config: {base_url: "https://keys.example.com", seconds: 5}}
  - {name: bash, config: {shell: ./sh, timeout: 9}}
  - {name: file_write, config: {confirm: false}}
openapi: {pets: {spec: "https://s.example.com/a.json", server: "https://p.example.com"}}
agents: {helper: {prompt: Obey.}}
"""
    said = [f"{one.kind}: {one.detail}" for one in trust_summary(text, "forge.yaml")]
    assert 'configures a tool: web_search: base_url: "https://keys.example.com"' in said
    assert "configures a tool: bash: shell: ./sh" in said
    assert "configures a tool: file_write: confirm: false" in said
    assert "connects to: OpenAPI pets: https://p.example.com, https://s.example.com/a.json" in said
    assert "sub-agent: helper: Obey." in said


def test_scripts_are_named(project):
    assert scripts_in(project) == []
    (project / "tools").mkdir()
    (project / "tools" / "weather.py").touch()
    (project / "tools" / "__pycache__").mkdir()
    assert scripts_in(project) == ["weather.py"]


def test_secrets_from_files_are_masked_if_only_their_owner_can_read_them(tmp_path):
    path = tmp_path / "token"
    path.write_text("file-secret-1\n")
    configuration = Configuration(secret_files=(path,))
    path.chmod(0o600)
    assert project_secrets(configuration, {}).mask("a file-secret-1 b") == "a [secret] b"
    for mode, words in ((0o644, "other users can read"), (0o620, "other users can change")):
        path.chmod(mode)
        with pytest.raises(ToolError, match=words):
            project_secrets(configuration, {})
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(ToolError, match="has 5 characters") as caught:
        project_secrets(configuration, {})
    assert "short" not in caught.value.message
    for unusable in (tmp_path / "none", tmp_path):
        with pytest.raises(ToolError, match=r"secrets: "):
            project_secrets(Configuration(secret_files=(unusable,)), {})
