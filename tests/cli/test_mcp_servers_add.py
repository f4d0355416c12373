"""`forge mcp add`, `install`, `remove` and `search`: installed, pinned, shown and asked for."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
import sys
import threading
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from forge.project.trust import trust_state
from tests.cli.test_terminal import talk
from tests.mcp.client.test_stdio_sandbox import SERVER
from tests.network.serving import Reply, page, serving

FAKE_NPM = Path(__file__).with_name("fake_npm.py")
ADD = ("mcp", "add", "say", "--sandbox", "auto")  # these tests also run where no sandbox can be had
COMMAND = ("--", "npx", "-y", "say-server")


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def data(tmp_path_factory, monkeypatch, workspace):
    """The user's data, and a PATH with an npm and a node that need no network."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "bin").mkdir()
    script(folder / "bin" / "npm", f'exec "{sys.executable}" "{FAKE_NPM}" "{SERVER}" "$@"')
    script(folder / "bin" / "node", f'exec "{sys.executable}" "$@"')
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.delenv("FORGE_MCP_REGISTRY", raising=False)
    return folder / "data" / "forge"


def written(workspace):
    return (workspace / "forge.yaml").read_text()


def test_a_package_is_installed_pinned_and_used(here, data, workspace):
    (workspace / "forge.yaml").write_text("# ours\nagent: {prompt: Be kind.}  # always\n")
    assert here("trust", "--yes").code == 0
    added = here(*ADD, "--yes", "--json", *COMMAND)
    assert added.code == 0, added.err
    (server,) = added.json["servers"]
    assert (added.json["written"], added.json["needs_trust"]) == (True, False)
    assert server["tools"] == ["try"]
    assert server["locked"] == {
        "registry": "npm",
        "package": "say-server",
        "version": "1.2.3",
        "packages": 1,
        "integrity": server["entry"]["integrity"],
    }
    assert server["entry"]["args"] == ["-y", "say-server@1.2.3"]
    assert written(workspace).startswith("# ours\nagent: {prompt: Be kind.}  # always\nmcpServers:\n  say:\n")
    assert trust_state(workspace).status == "trusted"
    assert "say-server" in (workspace / "forge.mcp.lock").read_text()
    assert not list(data.parent.glob("**/new-*"))
    called = here("tool", "call", "say__try", json.dumps({"code": "found = 6 * 7"}), "--yes")
    assert '"for_llm": "42"' in called.out


def test_a_server_that_is_pinned_and_not_installed_says_how_to_install_it(here, data, workspace):
    assert here(*ADD, "--yes", *COMMAND).code == 0
    shutil.rmtree(data / "mcp-programs")
    (down,) = here("mcp", "list", "--json").json["servers"]
    assert "pinned, and not installed on this machine\nInstall it: forge mcp install say" in down["error"]
    found = {one["check"]: one for one in here("doctor", "--json").json["checks"]}
    assert found["mcp say"]["fix"] == "forge mcp install say"
    assert here("mcp", "install", "nobody").code == 2
    assert here("mcp", "install", "--json").json == {"installed": ["say"]}
    (up,) = here("mcp", "list", "--json").json["servers"]
    assert up["state"] == "up"


def test_a_changed_lock_installs_nothing(here, data, workspace):
    assert here(*ADD, "--yes", *COMMAND).code == 0
    shutil.rmtree(data / "mcp-programs")
    lock = workspace / "forge.mcp.lock"
    lock.write_text(lock.read_text().replace("sha512-aaaa", "sha512-evil"))
    refused = here("mcp", "install")
    assert refused.code == 2
    assert "the lock does not fit" in refused.err
    lock.write_text("{}")
    assert "cannot be read" in here("mcp", "install").err


def test_nothing_happens_without_an_answer_and_a_dry_run_only_shows(here, data, workspace):
    shown = here(*ADD, "--dry-run", *COMMAND)
    assert shown.code == 0
    assert "installs" in shown.err
    assert "say-server 1.2.3 with 1 packages in all, from npm" in shown.err
    refused = here(*ADD, *COMMAND)
    assert refused.code == 3
    assert "there is no terminal to ask at" in refused.err
    assert not (workspace / "forge.yaml").exists()
    assert not list((data / "mcp-programs").iterdir())


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_a_person_sees_what_it_turns_on_and_decides(data, workspace, answer, code):
    more = ("--network", "--env", "SAY_TOKEN")
    ended, shown = talk(workspace, *ADD, *more, *COMMAND, says=((b"Add this server? [y/N]: ", answer),))
    assert ended == code
    assert "MCP server say: npx -y say-server@1.2.3 (sets SAY_TOKEN)" in shown
    assert "MCP server say: every address, also on this machine" in shown
    assert "reads variables" in shown
    assert (workspace / "forge.yaml").exists() is (code == 0)
    if code == 0:  # the variable is not set: that is said, and nothing is lost
        assert "It cannot be started yet: " in shown
        assert "the environment variable SAY_TOKEN is not set" in shown


def test_a_file_that_was_not_trusted_is_changed_and_has_to_be_trusted(here, data, workspace):
    (workspace / "forge.yaml").write_text("agent: {prompt: Do evil.}\n")
    added = here(*ADD, "--yes", *COMMAND)
    assert added.code == 0
    assert "run `forge trust`" in added.out
    assert trust_state(workspace).status == "new"


def test_a_name_is_taken_once_and_replaced_on_request(here, data, workspace):
    assert here(*ADD, "--yes", *COMMAND).code == 0
    again = here(*ADD, "--yes", *COMMAND)
    assert again.code == 2
    assert "replace it with --replace" in again.err
    (workspace.parent / "x").mkdir(exist_ok=True)  # a server that is tried needs its directories
    replaced = here(*ADD, "--yes", "--replace", "--access", "none", "--root", "../x:write", *COMMAND)
    assert replaced.code == 0
    assert "workspace: none" in written(workspace)
    assert "roots: [{path: ../x, access: write}]" in written(workspace)


def test_what_was_added_is_removed_with_its_installation(here, data, workspace):
    assert here(*ADD, "--yes", *COMMAND).code == 0
    assert here("mcp", "remove", "say", "--dry-run").code == 0
    assert len(list((data / "mcp-programs").iterdir())) == 2
    removed = here("mcp", "remove", "say", "--json")
    assert removed.json == {"server": "say", "removed": True, "needs_trust": False}
    assert written(workspace) == ""
    assert not (workspace / "forge.mcp.lock").exists()
    assert not list((data / "mcp-programs").iterdir())
    assert here("mcp", "remove", "say").code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--", "npx", "unheard-of"), "npm error 404"),
        (("--", "npx", "-y", "github:a/b"), "is not the name of a package"),
        (("--", "no-such-program", "x"), "there is no program 'no-such-program' on this machine"),
        ((), "needs either a command or a document"),
        (("--env", "SAY_TOKEN=abc", *COMMAND), "--env SAY_TOKEN"),
        (("--as", "1", *COMMAND), "cannot be the name of a server"),
    ],
)
def test_what_cannot_be_added_is_explained_and_changes_nothing(here, data, workspace, words, said):
    refused = here(*ADD, "--yes", *words)
    assert refused.code == 2
    assert said in refused.err
    assert not (workspace / "forge.yaml").exists()


FAILING = {
    "ends at once": "import sys; sys.exit('no database')",
    "ends well and says nothing": "",
    "speaks no MCP": "import sys; print('hello'); sys.stdin.readline(); print('bye')",
    "does not exist": None,
}


@pytest.mark.parametrize("case", FAILING)
def test_a_program_that_fails_when_it_is_tried_is_not_written(here, data, workspace, case):
    before = "# ours\nagent: {prompt: Be kind.}\n"
    (workspace / "forge.yaml").write_text(before)
    code = FAILING[case]
    if code is not None:
        (workspace / "server.py").write_text(code)
    add = ("mcp", "add", "own", "--sandbox", "auto", "--yes")
    command = ("--", sys.executable, "server.py")
    refused = here(*add, *command)
    assert refused.code == 2
    assert "cannot add the server own: it was started to try it, and failed: " in refused.err
    assert "Nothing was written. Correct the command, or add the server as it is with --force." in refused.err
    assert written(workspace) == before
    assert trust_state(workspace).status == "new"
    forced = here(*add, "--force", *command)
    assert (forced.code, "Added own. It cannot be started yet: " in forced.out) == (0, True)
    assert "server.py" in written(workspace)


def test_a_program_that_works_when_it_is_tried_is_written(here, data, workspace):
    (workspace / "forge.yaml").write_text("# ours\n")
    shutil.copy(SERVER, workspace / "server.py")
    added = here("mcp", "add", "own", "--sandbox", "auto", "--yes", "--", sys.executable, "server.py")
    assert (added.code, "Added own. It offers 1 tools: try." in added.out) == (0, True)
    assert "server.py" in written(workspace)


def test_a_package_that_fails_when_it_is_tried_is_not_left_installed(here, data, workspace):
    script(data.parent.parent / "bin" / "node", "exit 3")
    refused = here(*ADD, "--yes", *COMMAND)
    assert refused.code == 2
    assert "it was started to try it, and failed" in refused.err
    assert not (workspace / "forge.yaml").exists()
    assert not (workspace / "forge.mcp.lock").exists()
    assert not list((data / "mcp-programs").iterdir())


def test_a_url_and_a_program_of_ones_own_are_added_without_an_installation(here, data, workspace):
    assert here("mcp", "add", "docs", "http://127.0.0.1:9/mcp", "--yes").code == 0
    shutil.copy(SERVER, workspace / "server.py")
    added = here("mcp", "add", "own", "--sandbox", "auto", "--yes", "--json", "--", sys.executable, "server.py")
    assert added.json["servers"][0]["tools"] == ["try"]
    assert "url: http" in written(workspace).replace('"', "")
    assert not (workspace / "forge.mcp.lock").exists()


DOCUMENT = {
    "name": "io.example/say",
    "version": "9",
    "description": "Says it.\x1b[31m",
    "packages": [
        {"registryType": "nuget", "identifier": "Say"},
        {
            "registryType": "npm",
            "identifier": "say-server",
            "version": "1.2.3",
            "transport": {"type": "stdio"},
            "packageArguments": [
                {"type": "named", "name": "--greeting", "isRequired": True, "description": "What to say."},
                {"type": "positional", "valueHint": "place", "default": "here"},
                {"type": "positional", "valueHint": "more"},
            ],
            "environmentVariables": [
                {"name": "SAY_TOKEN", "isSecret": True, "isRequired": True},
                {"name": "SAY_LEVEL", "default": "info"},
                {"name": "SAY_COLOUR"},
            ],
        },
    ],
    "remotes": [
        {"type": "sse", "url": "https://say.example/sse"},
        {
            "type": "streamable-http",
            "url": "https://{tenant}.example/mcp",
            "variables": {"tenant": {"isRequired": True}},
            "headers": [{"name": "X-Key", "isSecret": True}],
        },
    ],
}


@contextmanager
def registry():
    """A registry on loopback, and the paths that it was asked for."""
    ready, loop, ended = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    found = {}

    def answer(asked):
        if asked.path.startswith("/v0/servers?search=say"):
            return page(json.dumps({"servers": [{"server": DOCUMENT}, {"server": 3}], "metadata": {}}))
        if asked.path == "/v0/servers/io.example%2Fsay/versions/latest":
            return page(json.dumps({"server": DOCUMENT, "_meta": {}}))
        if asked.path.startswith("/v0/servers?search=html"):
            return page("<html>")
        return Reply([b"{}"], 404) if "versions" in asked.path else page('{"servers": []}')

    async def work():
        async with serving(answer) as server:
            found["server"] = server
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    assert ready.wait(60)
    try:
        yield found["server"]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        loop.close()


def test_a_registry_is_searched_and_its_texts_are_made_harmless(here, data, monkeypatch):
    with registry() as server:
        monkeypatch.setenv("FORGE_MCP_REGISTRY", server.url)
        found = here("mcp", "search", "say", "--json")
        (one,) = found.json["servers"]
        assert (one["name"], one["version"], one["kinds"]) == ("io.example/say", "9", ["npm", "remote"])
        shown = here("mcp", "search", "say")
        assert "\x1b[31m" not in shown.out
        assert "forge mcp add io.example/say" in shown.err
        assert here("mcp", "search", "nothing").code == 1
        broken = here("mcp", "search", "html")
        assert (broken.code, "the answer is not JSON" in broken.err) == (2, True)
        assert here("mcp", "search", "x", "--registry", "http://127.0.0.1:9").code == 2
    assert "search=say&version=latest&limit=20" in server.paths[0]


def test_a_server_is_added_by_its_name_in_the_registry(here, data, workspace, monkeypatch):
    monkeypatch.setenv("SAY_TOKEN", "a-secret-value")
    add = ("mcp", "add", "io.example/say", "--sandbox", "auto", "--yes")
    with registry() as server:
        lacking = here(*add, "--registry", server.url)
        assert lacking.code == 2
        assert "--set greeting=VALUE (What to say.)" in lacking.err
        assert "asks for no town" in here(*add, "--registry", server.url, "--set", "greeting=hi", "--set", "town=x").err
        added = here(*add, "--registry", server.url, "--set", "greeting=hi", "--json")
        unknown = here("mcp", "add", "io.example/other", "--registry", server.url, "--yes")
    (one,) = added.json["servers"]
    assert one["server"] == "say"
    assert one["entry"]["args"] == ["-y", "say-server@1.2.3", "--greeting", "hi", "here"]
    assert one["entry"]["env"] == {"SAY_TOKEN": "${SAY_TOKEN}", "SAY_LEVEL": "${SAY_LEVEL:-info}"}
    assert one["tools"] == ["try"]
    assert any("SAY_COLOUR" in note for note in one["notes"])
    assert any("also offered as remote" in note for note in one["notes"])
    assert "a-secret-value" not in written(workspace) + added.out
    assert "forge mcp search" in unknown.err


def test_a_document_in_a_file_offers_a_url(here, data, workspace):
    (workspace / "server.json").write_text(json.dumps(DOCUMENT))
    add = ("mcp", "add", "say", "--from", "server.json", "--kind", "remote", "--dry-run", "--json")
    (one,) = here(*add, "--set", "tenant=acme").json["servers"]
    assert one["entry"] == {"url": "https://acme.example/mcp", "headers": {"X-Key": "${X_KEY}"}}
    assert "is a secret" in here(*add, "--set", "tenant=acme", "--set", "X-Key=abc").err
    (workspace / "server.json").write_text(json.dumps({"name": "x", "packages": [{"registryType": "nuget"}]}))
    refused = here("mcp", "add", "say", "--from", "server.json", "--yes")
    assert (refused.code, "x offers nuget" in refused.err) == (2, True)


def test_an_image_is_pinned_by_its_digest(here, data, workspace, monkeypatch):
    digest = f"example.org/say@sha256:{'a' * 64}"
    script(data.parent.parent / "bin" / "docker", f'[ "$1" = image ] && echo "{digest}"; exit 0')
    package = {
        "registryType": "oci",
        "identifier": "example.org/say:1",
        "environmentVariables": [{"name": "A", "value": "b"}],
    }
    (workspace / "server.json").write_text(json.dumps({"name": "x/say", "packages": [package]}))
    (one,) = here("mcp", "add", "say", "--from", "server.json", "--dry-run", "--json").json["servers"]
    assert one["entry"]["args"] == ["run", "-i", "--rm", "-e", "A", digest]
    assert one["entry"]["sandbox"] == "off"
    assert any(effect["kind"] == "switches off" for effect in one["turns_on"])
    script(data.parent.parent / "bin" / "docker", "exit 0")
    refused = here("mcp", "add", "say", "--from", "server.json", "--dry-run")
    assert (refused.code, "has no digest" in refused.err) == (2, True)


@pytest.mark.slow  # it makes two virtual environments
def test_a_wheel_is_installed_with_its_hash_by_the_real_installer(here, data, workspace, monkeypatch):
    wheels = workspace / "wheels"
    _make_wheel(wheels)
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(wheels))
    added = here("mcp", "add", "say", "--sandbox", "auto", "--yes", "--json", "--", "uvx", "tries-server")
    assert added.code == 0, added.err
    (one,) = added.json["servers"]
    assert (one["tools"], one["locked"]["version"]) == (["try"], "1.0")
    shutil.rmtree(data / "mcp-programs")
    _make_wheel(wheels, more="# another")
    refused = here("mcp", "install")
    assert refused.code == 2
    assert "hash" in refused.err.lower()


def _make_wheel(folder, more=""):
    folder.mkdir(exist_ok=True)
    code = "def main():\n" + "".join(
        f"    {line}\n" for line in SERVER.read_text().splitlines()[2:] if "__future__" not in line
    )
    info = "tries_server-1.0.dist-info"
    files = {
        "tries_server.py": f"{code}\n{more}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tries-server\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntries-server = tries_server:main\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}\n"
        for name, text in files.items()
    )
    with zipfile.ZipFile(folder / "tries_server-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(name, text)
