"""`forge import`: servers of other clients, without their secrets, and nothing dropped in silence."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.test_mcp_servers_add import data

__all__ = ["data"]  # a fixture

VSCODE = """
{
  // of the whole team
  "inputs": [{"id": "api-key", "type": "promptString", "description": "The key of the shop", "password": true}],
  "servers": {
    "shop": {
      "type": "stdio", "command": "npx", "args": ["-y", "say-server", "--root", "${workspaceFolder}/src"],
      "env": {"SHOP_KEY": "${input:api-key}", "HOST": "${env:SHOP_HOST}", "URL": "https://a.example//b"},
    },
    "far": {"type": "http", "url": "https://far.example/mcp", "headers": {"Authorization": "Bearer ${env:FAR}"}},
    /* old */ "older": {"type": "sse", "url": "https://old.example/sse"},
  },
}
"""


@pytest.fixture
def home(workspace, monkeypatch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    return folder


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def entries(ended):
    return {one["server"]: one["entry"] for one in ended.json["servers"]}


def notes(ended):
    return [note for one in ended.json["servers"] for note in one["notes"]]


def test_vscode_with_comments_inputs_and_variables(here, data, home, workspace):
    write(workspace / ".vscode" / "mcp.json", VSCODE)
    shown = here("import", "vscode", "--dry-run", "--json")
    assert shown.code == 0, shown.err
    found = entries(shown)
    assert found["shop"]["args"] == ["-y", "say-server@1.2.3", "--root", "./src"]
    assert found["shop"]["env"] == {"SHOP_KEY": "${API_KEY}", "HOST": "${SHOP_HOST}", "URL": "https://a.example//b"}
    assert found["shop"]["integrity"].startswith("sha256:")
    assert found["far"] == {"url": "https://far.example/mcp", "headers": {"Authorization": "Bearer ${FAR}"}}
    assert found["older"] == {"url": "https://old.example/sse", "type": "sse", "disabled": True}
    assert "shop: set the variable API_KEY before Forge starts: The key of the shop" in notes(shown)
    assert any("old SSE transport" in note for note in notes(shown))
    assert not (workspace / "forge.yaml").exists()


def test_secrets_become_variables_and_their_values_are_nowhere(here, data, home, workspace):
    write(
        home / ".cursor" / "mcp.json",
        {
            "mcpServers": {
                "one": {
                    "command": sys.executable,
                    "args": ["s.py", "--api-key=hunter2hunter2", "--token", "tok3ntok3n", "--mode", "fast"],
                    "env": {"GITHUB_TOKEN": "ghp_0123456789abcdefghij0123456789abcdef", "MODE": "fast"},
                },
                "two": {"command": sys.executable, "env": {"GITHUB_TOKEN": "another-value-here"}},
                "three": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer abcdefgh12345678"}},
            }
        },
    )
    (workspace / "forge.yaml").write_text("# ours\nsandbox: off\n")
    assert here("trust", "--yes").code == 0
    done = here("import", "cursor", "--yes", "--json")
    found = entries(done)
    assert found["one"]["args"] == ["s.py", "--api-key=${ONE_API_KEY}", "--token", "${ONE_TOKEN}", "--mode", "fast"]
    assert found["one"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "fast"}
    assert found["two"]["env"] == {"GITHUB_TOKEN": "${TWO_GITHUB_TOKEN}"}
    assert found["three"]["headers"] == {"Authorization": "Bearer ${THREE_TOKEN}"}
    everything = done.out + done.err + (workspace / "forge.yaml").read_text()
    for secret in ("hunter2hunter2", "tok3ntok3n", "ghp_0123456789", "another-value-here", "abcdefgh12345678"):
        assert secret not in everything
    assert (workspace / "forge.yaml").read_text().startswith("# ours\nsandbox: off\nmcpServers:\n")
    assert any("set the variable ONE_TOKEN" in note for note in notes(done))


def test_claude_code_and_claude_desktop_are_found_where_they_are(here, data, home, workspace):
    own = {"command": sys.executable}
    write(workspace / ".mcp.json", {"mcpServers": {"ours": own}})
    write(
        home / ".claude.json",
        {"mcpServers": {"mine": own}, "projects": {str(workspace): {"mcpServers": {"here": own}}}},
    )
    support = home / ("Library/Application Support" if sys.platform == "darwin" else ".config")
    write(support / "Claude" / "claude_desktop_config.json", {"mcpServers": {"My Files!": own, "9": own}})
    found = here("import", "--json").json["found"]
    assert [(one["client"], one["servers"]) for one in found] == [
        ("claude-desktop", ["My-Files", "server-9"]),
        ("claude-code", ["here", "mine", "ours"]),
    ]
    assert set(entries(here("import", "claude-code", "--dry-run", "--json"))) == {"ours", "mine", "here"}
    desktop = here("import", "claude-desktop", "--dry-run", "--json")
    assert set(entries(desktop)) == {"My-Files", "server-9"}
    assert any("it is called My Files! there" in note for note in notes(desktop))
    assert "My-Files" in here("import").out


def test_nothing_is_left_out_without_a_word(here, data, home, workspace, tmp_path_factory):
    outside = str(tmp_path_factory.mktemp("outside"))
    (workspace / "forge.yaml").write_text("mcpServers: {taken: {command: x}}\n")
    write(
        workspace / "theirs.json",
        {
            "mcpServers": {
                "taken": {"command": "x"},
                "none": {},
                "lost": {"command": "npx", "args": ["unheard-of"]},
                "good": {
                    "command": "cmd",
                    "args": ["/c", "npx", "say-server", outside],
                    "autoApprove": ["a"],
                    "icon": 1,
                },
                "off": {"command": "x", "disabled": True},
            }
        },
    )
    shown = here("import", "theirs.json", "--network", "good", "--dry-run", "--json")
    left_out = shown.json["left_out"]
    assert set(left_out) == {"taken", "none", "lost"}
    assert "already" in left_out["taken"]
    assert "npm error 404" in left_out["lost"]
    found = entries(shown)
    assert found["off"]["disabled"]
    assert found["good"]["network"]
    assert found["good"]["roots"] == [{"path": outside, "access": "write"}]
    assert any("allow tool:good__TOOL" in note for note in notes(shown))
    assert any("icon is left out" in note for note in notes(shown))
    text = here("import", "theirs.json", "--dry-run").err
    assert "taken is left out" in text
    assert "opens directory" in text


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"mcpServers": []}'])
def test_a_file_without_servers_is_refused(here, data, home, workspace, content):
    write(workspace / "x.json", content)
    refused = here("import", "x.json", "--yes")
    assert refused.code == 2
    assert refused.err
    assert here("import", "cursor").code == 2
