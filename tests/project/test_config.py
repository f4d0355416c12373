"""`forge.yaml` is read with bounds and refused with its place."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from forge.core.context import ProgramLimits
from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import find_missing
from forge.network.program_secrets import put_placeholders
from forge.project.assemble.access import project_egress
from forge.project.assemble.secrets import find_placeholders
from forge.project.config import Configuration, load_configuration
from forge.project.config.reader import document_schema

WHOLE = """
tools:
  - datetime_now
  - group: read
  - name: "math_*"
    config: {timeout: 2.5, rate: {calls: 3, seconds: 60, max_calls: 10}, confirm: true, permissions: [read, network]}
permissions:
  rules: ["allow read", {action: deny, tool: "http_*"}]
workspace: {root: sub}
secrets: [GITHUB_TOKEN]
"""


def load(tmp_path: Path, text: str | bytes) -> Configuration:
    path = tmp_path / "forge.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_configuration(str(path))


def refused(tmp_path: Path, text: str | bytes) -> ToolError:
    with pytest.raises(ToolError) as caught:
        load(tmp_path, text)
    assert caught.value.kind is ErrorKind.CONFIG
    assert str(tmp_path / "forge.yaml") in caught.value.message
    assert caught.value.suggestion
    return caught.value


def test_no_file_means_everything_and_no_rules():
    assert load_configuration(None) == Configuration()


def test_a_whole_file_is_read(tmp_path):
    loaded = load(tmp_path, WHOLE)
    assert loaded.tools is not None
    first, second, third = loaded.tools
    assert (first.name, second.group, third.name) == ("datetime_now", "read", "math_*")
    assert third.config == {
        "timeout": 2.5,
        "rate": {"calls": 3, "seconds": 60, "max_calls": 10},
        "confirm": True,
        "permissions": ["read", "network"],
    }
    assert len(loaded.rules) == 2
    assert loaded.root == tmp_path / "sub"
    assert loaded.secrets == ("GITHUB_TOKEN",)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "tools: []"])
def test_an_empty_file_is_a_configuration(tmp_path, text):
    assert load(tmp_path, text).rules == ()


def test_an_empty_list_of_tools_is_not_the_same_as_none(tmp_path):
    assert load(tmp_path, "tools: []").tools == ()
    assert load(tmp_path, "secrets: []").tools is None


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("tols: []", "tols", "unknown key"),
        ("tools: {}", "tools", "expected a list, got an object"),
        ("tools: null", "tools", "expected a list, got a null"),
        ("tools: [5]", "tools[0]", "expected a mapping, got an integer"),
        ("tools: [{}]", "tools[0]", "either a name or a group"),
        ("tools: [{name: a, group: b}]", "tools[0]", "either a name or a group"),
        ("tools: [{name: ''}]", "tools[0].name", "an empty string"),
        ("tools: [{name: a, confg: {}}]", "tools[0].confg", "unknown key"),
        ("tools: [{name: a, config: {timeout: 0}}]", "tools[0].config.timeout", "above 0"),
        ("tools: [{name: a, config: {timeout: .inf}}]", "tools[0].config.timeout", "above 0"),
        ("tools: [{name: a, config: {timeout: true}}]", "tools[0].config.timeout", "above 0"),
        ("tools: [{name: a, config: {timeout: fast}}]", "tools[0].config.timeout", "above 0"),
        ("tools: [{name: a, config: {confirm: 1}}]", "tools[0].config.confirm", "true or false"),
        ("tools: [{name: a, config: {permissions: [raed]}}]", "tools[0].config.permissions[0]", "raed"),
        ("tools: [{name: a, config: {rate: 5}}]", "tools[0].config.rate", "expected a mapping"),
        ("tools: [{name: a, config: {rate: {calls: -1}}}]", "tools[0].config.rate.calls", "from 0"),
        ("tools: [{name: a, config: {rate: {call: 1}}}]", "tools[0].config.rate.call", "unknown key"),
        ("permissions: [allow read]", "permissions", "expected a mapping, got an array"),
        ("permissions: {rule: []}", "permissions.rule", "unknown key"),
        ("workspace: {root: 5}", "workspace.root", "expected a string, got an integer"),
        ("secrets: [5]", "secrets[0]", "expected a string"),
        ("5: x", "5", "expected a string as key"),
        ("agent: {options: {5: x}}", "agent.options.5", "expected a string as key"),
        ("agent: {options: {a: 2026-01-01}}", "agent.options.a", "got a date; put it in quotes"),
        ("agent: {version: 2026-01-01}", "agent.version", "expected a string"),
        ("mcpServers: {a: {command: x, args: [2026-01-01]}}", "mcpServers.a.args[0]", "expected a string"),
        ("limits: {turns: .nan}", "limits.turns", "expected a whole number from 1, got nan"),
        ("memory: {embedder: .inf}", "memory.embedder", "expected none, local, or a url and a model"),
        ("memory: {embedder: {type: remote}}", "memory.embedder.type", "expected one of none, local, endpoint"),
        ("memory: {embedder: {url: a}}", "memory.embedder", "model is missing"),
        ("limits: {calls: x}\nagent: {modle: x}", "limits.calls", "(line 1)"),  # the first in the file
        ("agent: {modle: x}\nlimits: {calls: x}", "agent.modle", "(line 1)"),
        ("just text", "the document", "expected a mapping, got a string"),
        ("- a", "the document", "expected a mapping, got an array"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path, text, place, words):
    error = refused(tmp_path, text)
    assert f": {place}: " in error.message
    assert words in error.message


def test_a_near_key_is_suggested_with_an_example_of_it(tmp_path):
    suggestion = refused(tmp_path, "tols: []").suggestion
    assert suggestion.startswith("Did you mean 'tools'? For example: tools: [{group: read}")
    suggestion = refused(tmp_path, "tools: [{name: a, config: {permissions: [raed]}}]").suggestion
    assert suggestion == "Did you mean 'read'? For example: permissions: [read]"


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("limits: {turns: 0}", "turns: 50"),
        ("sandbox: maybe", "sandbox: required"),
        ("egress: {mode: closed}", "mode: allowlist"),
        ("tools: [{name: a, config: {timeout: 0}}]", "timeout: 30"),
        ("mcpServers: {a: {}}", "a: {command: uvx, args: [mcp-server-git]}"),
        ("agents: {a: {limits: {turns: x}}}", "turns: 50"),
        ("schedules: [{id: a}]", "{id: nightly, cron:"),
        ("permissions: {rules: allow read}", "rules: [allow read"),
        ("5: x", "{agent:"),
    ],
)
def test_every_refusal_shows_how_it_is_written(tmp_path, text, example):
    assert f"For example: {example}" in refused(tmp_path, text).suggestion.replace("example: - ", "example: ")


def test_a_key_like_no_other_lists_the_known_ones(tmp_path):
    assert all(key in refused(tmp_path, "zzz: 1").suggestion for key in document_schema()["properties"])


def test_directories_beside_the_workspace_are_read_only_unless_said_otherwise(tmp_path):
    loaded = load(tmp_path, "workspace: {roots: [lib, {path: notes, access: write}], writes: false}")
    assert [(one.path.name, one.writable) for one in loaded.roots] == [("lib", False), ("notes", True)]
    assert not loaded.writes
    for text, words in (
        ("workspace: {roots: lib}", "expected a list"),
        ("workspace: {roots: [{access: read}]}", "path is missing"),
        ("workspace: {roots: [{path: a, access: all}]}", "expected read or write"),
        ("workspace: {writes: 1}", "expected true or false"),
    ):
        assert words in refused(tmp_path, text).message


@pytest.mark.parametrize(("said", "meant"), [("off", "off"), ("false", "off"), ("required", "required")])
def test_the_sandbox_is_one_of_a_few(tmp_path, said, meant):
    assert load(tmp_path, f"sandbox: {said}").sandbox == meant
    assert "expected one of" in refused(tmp_path, "sandbox: maybe").message


def test_egress_names_domains_and_what_is_not_public(tmp_path):
    loaded = load(tmp_path, "egress: {domains: [api.example.com], private: ['127.0.0.1:8080']}").egress
    assert loaded is not None
    assert (loaded.mode, loaded.domains, loaded.private) == ("allowlist", ("api.example.com",), ("127.0.0.1:8080",))
    assert "expected one of" in refused(tmp_path, "egress: {mode: closed}").message
    assert "expected a list" in refused(tmp_path, "egress: {domains: a.com}").message


def test_an_agent_has_a_name_a_version_and_a_description(tmp_path):
    agent = load(tmp_path, 'agent: {id: ops, version: 0.1.0, description: "", prompt: "", model: "openai:x"}').agent
    assert (agent.id, agent.version, agent.description, agent.prompt, agent.model) == (
        "ops",
        "0.1.0",
        "",
        "",
        "openai:x",
    )
    assert "expected a string, got a number" in refused(tmp_path, "agent: {version: 0.1}").message
    assert "expected letters" in refused(tmp_path, "agent: {id: my agent}").message


def test_secrets_are_names_or_files(tmp_path):
    found = load(tmp_path, "secrets: [GITHUB_TOKEN, {file: private/token}]")
    assert (found.secrets, found.secret_files) == (("GITHUB_TOKEN",), (tmp_path / "private/token",))
    assert (
        "expected where the secret is: a name, file, command or keyring" in refused(tmp_path, "secrets: [{}]").message
    )
    assert "unknown key" in refused(tmp_path, "secrets: [{value: x}]").message


def test_a_secret_says_where_its_value_is_and_which_hosts_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("A_TOKEN", "the value of a variable")
    (tmp_path / "token").write_text("the value of a file\n")
    (tmp_path / "token").chmod(0o600)
    found = load(
        tmp_path,
        "secrets:\n"
        "  - {name: A_TOKEN, for: [API.example.com], header: 'X-Key: {}'}\n"
        "  - {name: B_TOKEN, file: token, for: ['*.example.org']}\n"
        "  - {name: C_TOKEN, command: [echo, the value of a command], lifetime: 5, for: [c.example.com]}\n"
        "mcpServers: {x: {command: y, env: {KEY: '${B_TOKEN}'}}}\n"
        "egress: {inspect: true, pass: [pinned.example.com]}\n",
    )
    egress = project_egress(found)
    assert egress is not None
    assert [(one.name, one.hosts, one.header, one.read()) for one in egress.secrets] == [
        ("A_TOKEN", ("api.example.com",), "X-Key: {}", "the value of a variable"),
        ("B_TOKEN", ("*.example.org",), "Authorization: Bearer {}", "the value of a file"),
        ("C_TOKEN", ("c.example.com",), "Authorization: Bearer {}", "the value of a command"),
    ]
    assert "the value of" not in repr(egress)
    assert found.servers["x"].environment["KEY"] == "the value of a file"
    assert (egress.ends_tls("any.example.net"), egress.ends_tls("pinned.example.com")) == (True, False)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{name: X_TOKEN, for: [x.test]}", "the value of X_TOKEN is empty"),
        ("{name: X, command: ['false'], for: [x.test]}", "the command false gave no secret: it ended with exit code 1"),
        ("{name: X, command: [echo, short], for: [x.test]}", "has 5 characters; it needs at least 8"),
        ("{name: X, command: [printf, 'line-one\\nline-two'], for: [x.test]}", "has several lines, or a control"),
        ("{name: X, file: nowhere, for: [x.test]}", "cannot be read"),
    ],
)
def test_a_secret_that_cannot_be_read_is_an_error_when_it_is_needed(tmp_path, monkeypatch, entry, why):
    monkeypatch.delenv("X_TOKEN", raising=False)
    egress = project_egress(load(tmp_path, f"secrets: [{entry}]"))
    assert egress is not None
    with pytest.raises(ToolError, match=why):
        egress.secrets[0].read()


@pytest.mark.parametrize(
    ("lifetime", "values"), [("0.000001", ["number 1 of it", "number 2 of it"]), ("60", ["number 1 of it"] * 2)]
)
def test_a_command_is_asked_again_when_its_value_is_too_old(tmp_path, lifetime, values):
    counts = f"echo >> {tmp_path}/asked; echo number $(wc -l < {tmp_path}/asked) of it"
    entry = f"{{name: X, command: [sh, -c, {counts!r}], lifetime: {lifetime}, for: [x.test]}}"
    egress = project_egress(load(tmp_path, f"secrets: [{entry}]"))
    assert egress is not None
    assert [egress.secrets[0].read() for _ in values] == values


@pytest.mark.skipif(bool(find_missing("secrets")), reason="needs the extra secrets")
def test_a_secret_comes_from_the_keyring(tmp_path):
    import keyring
    from keyring.backend import KeyringBackend

    class InMemory(KeyringBackend):
        priority = 1
        stored: dict[tuple[str, str], str] = {}  # noqa: RUF012

        def get_password(self, service: str, username: str) -> str | None:
            return self.stored.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.stored[service, username] = password

    used = keyring.get_keyring()
    keyring.set_keyring(InMemory())
    try:
        keyring.set_password("hub.example.com/api", "alice", "the value of a keyring")
        for place, came in (
            ("hub.example.com/api/alice", "the value"),
            ("hub.example.com/api/bob", "the keyring has no"),
        ):
            egress = project_egress(load(tmp_path, f"secrets: [{{name: X, keyring: {place}, for: [x.test]}}]"))
            assert egress is not None
            with pytest.raises(ToolError, match=came) if "no" in came else nullcontext():
                assert egress.secrets[0].read() == "the value of a keyring"
    finally:
        keyring.set_keyring(used)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("for: ['https://x.test']", "without scheme and port"),
        ("for: ['x.test:443']", "without scheme and port"),
        ("for: ['*']", "without scheme and port"),
        ("for: ['-a..b']", "is not a host"),
        ("for: [x.test], header: Authorization", "expected a header with {}"),
        ("for: [x.test], header: 'Authorization: secret'", "expected a header with {}"),
        ("for: [x.test], header: 'My Key: {}'", "expected a header with {}"),
        ("for: [x.test], header: 'Host: {}'", "the header Host cannot hold a secret"),
    ],
)
def test_a_secret_that_would_never_be_sent_is_an_error_at_once(tmp_path, entry, why):
    with pytest.raises(ToolError) as caught:
        project_egress(load(tmp_path, f"secrets: [{{name: X, {entry}}}]"))
    assert why in caught.value.message


def test_hosts_of_secrets_are_read_as_they_are_compared(tmp_path):
    egress = project_egress(load(tmp_path, "secrets: [{name: X, for: [X.Test., '*.bücher.test', '[2606:4700::1]']}]"))
    assert egress is not None
    assert egress.secrets[0].hosts == ("x.test", "*.xn--bcher-kva.test", "2606:4700::1")


def test_the_values_that_stay_outside_of_a_server_have_placeholders(tmp_path, monkeypatch):
    monkeypatch.setenv("A_TOKEN", "the value of a variable")
    monkeypatch.setenv("PLAIN", "plain")
    env = "{KEY: '${A_TOKEN}', URL: 'https://me:${A_TOKEN}@x.test', PLAIN: '${PLAIN}'}"
    found = load(
        tmp_path,
        "secrets: [{name: A_TOKEN, for: [x.test]}]\n"
        f"mcpServers: {{x: {{command: y, args: ['--token=${{A_TOKEN}}'], env: {env}}}}}\n"
        f"agents: {{z: {{acp: {{command: y, args: ['--token=${{A_TOKEN}}'], env: {env}}}}}}}\n",
    )
    egress = project_egress(found)
    assert egress is not None
    placeholder = egress.secrets[0].placeholder
    outside = found.agents["z"].acp
    assert outside is not None
    for entry in (found.servers["x"], outside):
        found_here = find_placeholders(entry.kept_outside, egress)
        assert {key: put_placeholders(text, found_here) for key, text in entry.environment.items()} == {
            "KEY": placeholder,
            "URL": f"https://me:{placeholder}@x.test",
            "PLAIN": "plain",
        }
        assert put_placeholders(entry.command[1], found_here) == f"--token={placeholder}"
        assert find_placeholders(entry.kept_outside, None) == {}


def test_a_value_that_changed_while_the_file_was_read_stays_outside_too(tmp_path):
    """Two variables name a secret whose command says something else each time."""
    found = load(
        tmp_path,
        f"secrets: [{{name: A_TOKEN, command: [sh, -c, 'echo >> {tmp_path}/n; echo a-token-$(wc -l < {tmp_path}/n)'],"
        " lifetime: 0.000001, for: [x.test]}]\n"
        "mcpServers: {x: {command: y, env: {ONE: '${A_TOKEN}', TWO: '${A_TOKEN}'}}}\n",
    )
    entry = found.servers["x"]
    assert entry.environment["ONE"] != entry.environment["TWO"]
    placeholders = find_placeholders(entry.kept_outside, project_egress(found))
    for text in entry.environment.values():
        assert put_placeholders(text, placeholders).startswith("forge-")


def test_a_header_without_hosts_is_a_mistake(tmp_path):
    assert "expected `for`" in refused(tmp_path, "secrets: [{name: X, header: 'A: {}'}]").message


def test_the_variables_that_must_be_set_are_known_without_looking_them_up(tmp_path):
    path = tmp_path / "forge.yaml"
    path.write_text(
        "secrets: [A]\nmcpServers: {x: {command: y, args: ['${B}', '${C:-c}'], headers_env: {D: D}}}\n"
        "openapi: {p: {spec: s, auth: {bearer_env: E}}}\nchannels: {t: {type: telegram, token_env: F}}\n"
    )
    found = load_configuration(str(path), resolve=False)
    assert found.variables == ("A", "B", "D", "E", "F")
    assert found.servers["x"].command == ("y", "${B}", "${C:-c}")
    with pytest.raises(ToolError, match="B is not set"):
        load_configuration(str(path), environment={}).check_set()
    assert load_configuration(str(path), environment=dict.fromkeys("ABDEF", "x")).servers["x"].command == (
        "y",
        "x",
        "c",
    )


def test_a_secret_written_where_a_name_belongs_is_not_repeated(tmp_path):
    error = refused(tmp_path, "secrets: ['sk-live-1234567890']")
    assert "1234567890" not in error.message + error.suggestion


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"tools: [", "not valid YAML"),
        (b"tools: []\n - a", "line 2"),
        (b"\xff\xfe", "not UTF-8"),
        (b"tools: []\ntools: []", "the key 'tools' appears twice"),
        (b"tools: !!python/object:os.system {}", "not valid YAML"),
        (b"workspace: {root: 2026-99-99}", "not valid YAML"),
        (b"secrets: [" * 50, "20 levels deep"),
        (b"a: &a [x]\nb: [" + b"*a," * 50 + b"]", "20 aliases"),
        (b"secrets: [" + b"a," * 30_000 + b"]", "20,000 values"),
        (b"#" * 300_000, "larger than 256 KiB"),
        (b"a: 1\n---\nb: 2", "not valid YAML"),
        (b"\x00", "not valid YAML"),
    ],
)
def test_a_hostile_file_is_refused_before_it_is_built(tmp_path, text, words):
    assert words in refused(tmp_path, text).message


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo"])
def test_what_is_no_file_is_refused(tmp_path, kind):
    path = tmp_path / "forge.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(ToolError, match=r"forge\.yaml: cannot read the configuration"):
        load_configuration(str(path))


def test_a_name_no_file_can_have_is_refused():
    with pytest.raises(ToolError, match="cannot read"):
        load_configuration("a\0b")


def test_what_programs_may_use_is_read_and_bounded(tmp_path):
    said = load(tmp_path, "programs: {memory: 4096, processes: 0}").programs
    assert said.limits == ProgramLimits(memory=4096, processes=0)
    assert load(tmp_path, "tools: []").programs.limits == ProgramLimits()
    for text, words in (
        ("{memory: 10}", "programs.memory: expected 0 (no limit) or at least 64 MiB, got 10"),
        ("{processes: 3}", "programs.processes: expected 0 (no limit) or at least 16, got 3"),
        ("{open_files: -1}", "programs.open_files: expected a whole number from 0"),
        ("{swap: 1}", "swap"),
    ):
        assert words in refused(tmp_path, f"programs: {text}").message
