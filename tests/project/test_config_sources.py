"""Other people's tools in `forge.yaml`."""

from __future__ import annotations

import pytest

from forge.core.errors import ToolError
from forge.project.assemble.secrets import project_secrets
from forge.project.assemble.services import build_channel
from forge.project.config import Configuration, load_configuration


@pytest.fixture
def read(tmp_path):
    def configuration(text: str) -> Configuration:
        path = tmp_path / "forge.yaml"
        path.write_text(text)
        return load_configuration(str(path))

    return configuration


def test_servers_are_written_as_other_clients_write_them(read, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_TOKEN", "t0k3n-of-git")
    found = read(
        """
        mcpServers:
          git: {type: stdio, command: uvx, args: [mcp-server-git, --port, 8], env: {TOKEN: "${GIT_TOKEN}"}, cwd: sub}
          docs: {type: http, url: "https://docs.example.com/mcp", headers: {X-A: b}, include: ["read_*"], timeout: 5}
          idle: {command: never, disabled: true}
        """
    ).servers
    assert list(found) == ["git", "docs"]
    assert found["git"].command == ("uvx", "mcp-server-git", "--port", "8")
    assert found["git"].environment == {"TOKEN": "t0k3n-of-git"}
    assert found["git"].directory == tmp_path / "sub"
    assert found["docs"].url == "https://docs.example.com/mcp"
    assert found["docs"].headers == {"X-A": "b"}
    assert found["docs"].include == ("read_*",)
    assert found["docs"].timeout == 5


def test_variables_stand_for_what_the_environment_holds_and_secret_ones_are_masked(read, monkeypatch):
    monkeypatch.setenv("WHERE", "/some/where/else")
    monkeypatch.setenv("DOCS", "Bearer 1234567890")
    monkeypatch.delenv("ABSENT", raising=False)
    configuration = read(
        """
        mcpServers:
          files: {command: serve, args: ["${WHERE}", "${ABSENT:-fallback}"]}
          docs: {url: "https://docs.example.com/", headers_env: {Authorization: DOCS}}
        """
    )
    assert configuration.servers["files"].command == ("serve", "/some/where/else", "fallback")
    assert configuration.servers["docs"].headers == {"Authorization": "Bearer 1234567890"}
    masked = project_secrets(configuration).mask("Bearer 1234567890 in /some/where/else")
    assert "1234567890" not in masked
    assert "/some/where/else" in masked  # a directory is no secret


def test_documents_and_webhooks(read, tmp_path, monkeypatch):
    monkeypatch.setenv("PETS", "pets-token-1")
    monkeypatch.setenv("HOOK", "https://hooks.example.com/T0/B0/x")
    monkeypatch.setenv("ME", "me")
    found = read(
        """
        openapi:
          pets: {spec: pets.yaml, auth: {bearer_env: PETS}, include: [list*], tags: pets}
          keyed: {spec: "https://a.example.com/openapi.json", auth: {api_key_env: PETS, name: X-Key, in: header}}
          basic: {spec: b.json, auth: {basic_env: {user: ME, password: PETS}}, hidden: true}
          short: c.json
        webhooks:
          notify: {url_env: HOOK, description: "Tell the team.", parameters: {type: object}}
          plain: https://example.com/hook
        """
    )
    assert found.openapi["pets"].spec == str(tmp_path / "pets.yaml")
    assert found.openapi["pets"].auth == {"bearer": "pets-token-1"}
    assert found.openapi["pets"].tags == ("pets",)
    assert found.openapi["keyed"].spec == "https://a.example.com/openapi.json"
    assert found.openapi["keyed"].auth == {"api_key": "pets-token-1", "name": "X-Key", "in": "header"}
    assert found.openapi["basic"].auth == {"basic": ("me", "pets-token-1")}
    assert found.openapi["basic"].hidden is True
    assert found.openapi["short"].hidden is None
    assert found.webhooks["notify"].url == "https://hooks.example.com/T0/B0/x"
    assert found.webhooks["notify"].secrets == ("https://hooks.example.com/T0/B0/x",)
    assert found.webhooks["plain"].url == "https://example.com/hook"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("mcpServers: []", "mcpServers", "expected a mapping"),
        ("mcpServers: {a: {}}", "mcpServers.a", "either a command or a url"),
        ("mcpServers: {a: {command: x, url: y}}", "mcpServers.a", "either a command or a url"),
        ("mcpServers: {a: {comand: x}}", "mcpServers.a.comand", "unknown key"),
        ("mcpServers: {a: {command: x, type: sse}}", "mcpServers.a.type", "expected one of stdio"),
        ("mcpServers: {a: {command: x, args: y}}", "mcpServers.a.args", "expected a list"),
        ("mcpServers: {a: {command: x, args: [true]}}", "mcpServers.a.args[0]", "expected a string"),
        ("mcpServers: {a: {command: '${NOT_THERE}'}}", "mcpServers.a.command", "NOT_THERE is not set"),
        ("mcpServers: {a: {command: x, autoApprove: [b]}}", "mcpServers.a.autoApprove", "write a permission rule"),
        ("mcpServers: {a__b: {command: x}}", "mcpServers.a__b", "a name starts with a letter"),
        ("mcpServers: {'1': {command: x}}", "mcpServers.1", "a name starts with a letter"),
        ("openapi: {a: {}}", "openapi.a", "spec is missing"),
        ("openapi: {a: {spec: b, auth: {bearer: secret-value}}}", "openapi.a.auth.bearer", "unknown key"),
        ("openapi: {a: {spec: b, auth: {name: X}}}", "openapi.a.auth", "expected one of api_key_env"),
        ("openapi: {a: {spec: b, auth: {bearer_env: NOT_THERE}}}", "openapi.a.auth.bearer_env", "is not set"),
        ("openapi: {a: {spec: b, hidden: maybe}}", "openapi.a.hidden", "expected true or false"),
        ("webhooks: {a: {}}", "webhooks.a", "either a url, or url_env"),
        ("webhooks: {a: {url: b, timeout: 0}}", "webhooks.a.timeout", "above 0"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(read, text, place, problem, monkeypatch):
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(ToolError) as caught:
        read(text).check_set()
    assert f"forge.yaml: {place}: " in caught.value.message
    assert problem in caught.value.message
    assert "secret-value" not in caught.value.message


def test_an_entry_that_lacks_a_variable_is_left_out_and_the_others_stay(read, monkeypatch):
    monkeypatch.delenv("NOT_THERE", raising=False)
    found = read("mcpServers: {a: {command: '${NOT_THERE}'}, b: {command: x}}\nwebhooks: {w: {url_env: NOT_THERE}}\n")
    assert list(found.servers) == ["b"]
    assert (list(found.webhooks), list(found.unset)) == ([], ["mcpServers.a", "webhooks.w"])
    found.check_set("openapi")
    with pytest.raises(ToolError, match=r"webhooks\.w\.url_env: .*NOT_THERE is not set") as caught:
        found.check_set("webhooks")
    assert caught.value.suggestion == "Set it before Forge starts: export NOT_THERE=…"


def test_a_channel_that_lacks_a_variable_says_how_to_set_it(read, monkeypatch):
    monkeypatch.delenv("NOT_THERE", raising=False)
    found = read("channels: {t: {type: telegram, token_env: NOT_THERE, chat_id: 1}}\n")
    with pytest.raises(ToolError, match=r"channels\.t: the environment variable NOT_THERE is not set") as caught:
        build_channel(found, found.channels["t"])
    assert caught.value.suggestion == "Set it before Forge starts: export NOT_THERE=…"
    monkeypatch.setenv("NOT_THERE", "1:a")
    assert build_channel(found, found.channels["t"])
