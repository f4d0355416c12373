"""Where the calls play: a workspace full of odd files, and beside it what no call may reach."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forge
from forge.process.sandbox import Tier, choose_tier

SECRET = "beside-the-workspace-4f1c9ab2"
KEY = "a-registered-key-83b1d0e7"  # the value of a variable that is declared as a secret
BINARIES = ("cat", "echo", "head", "ls", "wc")
HARMLESS = (*BINARIES, "date", "false", "printf", "pwd", "sort", "tr", "true", "uniq")
SERVER = Path(__file__).with_name("say_server.py")

SCRIPT = '''"""
Tool: repeat
Description: Repeat a text.

Input:
  text (str): What to repeat.
  times (int) = 1: How often.
"""
import json, sys

given = json.load(sys.stdin)
print(" ".join([given["text"]] * int(max(0, min(given["times"], 1000)))))
'''
TEST = """import unittest


class Holds(unittest.TestCase):
    def test_it(self):
        self.assertTrue(True)
"""
FILES: dict[str, bytes] = {
    "notes.txt": b"one\ntwo\nthree\n",
    "src/main.py": b"def total(numbers):\n    return sum(numbers)\n",
    "src/endings.txt": b"one\r\ntwo\r\nthree",
    "src/old.txt": "größer\n".encode("latin-1"),
    "src/wide.txt": "breit\n".encode("utf-16"),
    "data/people.csv": b"name,age\nada,36\ngrace,85\n",
    "data/tree.json": b'{"a": [1, {"b": null}], "c": "d"}',
    "data/picture.png": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "data/binary.bin": bytes(range(256)) * 40,
    "data/big.txt": b"".join(b"%06d the quick brown fox\n" % number for number in range(20_000)),
    "data/line.txt": b"x" * 300_000,
    "empty": b"",
    "deep/a/b/c/d/e.txt": b"deep\n",
    "with space/and 'quote'.txt": b"spaced\n",
    "\u00fcml\u00e4ut.txt": b"umlaut\n",
    "tools/repeat.py": SCRIPT.encode(),
    "tests/test_holds.py": TEST.encode(),
    "skills/tidy/SKILL.md": b"---\nname: tidy\ndescription: Tidies up.\n---\nDo it.\n",
    "skills/tidy/more.md": b"More of it.\n",
    ".gitignore": b"*.log\n",
    "left-out.log": b"ignored\n",
}
BESIDE: dict[str, bytes] = {
    "secret.txt": f"{SECRET}\n".encode(),
    "deep/secret.txt": f"{SECRET}\n".encode(),
    "deep/empty": b"",
}


class Ground:
    """`workspace` is the tools' own; `beside` and `home` are compared byte for byte; `temporary` must end up empty."""

    def __init__(self, root: Path, site: str) -> None:
        self.root = root.resolve()
        self.workspace = self.root / "workspace"
        self.beside = self.root / "beside"
        self.home = self.root / "home"
        self.temporary = self.root / "temporary"
        self.config = self.root / "forge.yaml"
        self.log = self.root / "stderr.txt"
        self.site = site
        self._lay_out()
        self._before = dict(_state(self.beside)) | dict(_state(self.home))

    def _lay_out(self) -> None:
        for folder, files in ((self.workspace, FILES), (self.beside, BESIDE), (self.home, BESIDE)):
            for name, content in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self.temporary.mkdir()
        for name, target in _links(self.beside):
            (self.workspace / name).symlink_to(target)
        (self.workspace / "pipes").mkdir()
        os.mkfifo(self.workspace / "pipes" / "pipe")  # where no `cat *` waits for it
        (self.workspace / "pets.json").write_text(json.dumps(_pets(self.site)))
        self.config.write_text(json.dumps(self._configuration(), indent=1))  # JSON is YAML too

    def _configuration(self) -> dict[str, Any]:
        host = self.site.removeprefix("http://")
        return {
            "tools": [
                {"name": "*", "config": {"timeout": 20}},
                {"name": "cli_execute", "config": {"allowed_binaries": [*BINARIES]}},
                {"name": "web_fetch", "config": {"requests_per_minute": 1_000_000}},
                {"name": "web_search", "config": {"base_url": self.site}},
            ],
            "permissions": {"rules": _rules()},
            "workspace": {"root": "workspace"},
            "egress": {"mode": "allowlist", "domains": [host], "private": [host]},
            "mcpServers": {
                "say": {"command": sys.executable, "args": ["-I", str(SERVER)], "roots": [str(SERVER.parent)]}
            },
            "openapi": {"pets": {"spec": "workspace/pets.json", "server": self.site}},
            "webhooks": {"notify": {"url_env": "FUZZ_HOOK", "description": "Tell the team."}},
            "memory": {"enabled": True},
            "channels": {"paper": {"type": "file", "path": "workspace/paper.txt"}},
            "schedules": [{"id": "nightly", "cron": "0 3 * * *", "task": "Tidy up."}],
            "secrets": ["FUZZ_KEY"],
        }

    def environment(self) -> dict[str, str]:
        """Nothing of the person who runs this, so that nothing of theirs can be reached."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(Path(forge.__file__).parents[1]),
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "LANG": "C.UTF-8",
            "FUZZ_KEY": KEY,
            "FUZZ_HOOK": f"{self.site}/hook",
            "TAVILY_API_KEY": "fuzz",
            "NO_PROXY": "*",
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "forge", *words, "--config", str(self.config)]

    def approve_server(self) -> None:
        """What the MCP server offers is accepted once, as a person would do it."""
        command = self.command("mcp", "approve", "say", "--yes")
        done = subprocess.run(
            command, cwd=self.root, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"the server of the ground cannot be approved: {done.stderr}")

    def touched(self) -> list[str]:
        """What is not as it was, outside the workspace; Forge's own files of the user do not count."""
        now = dict(_state(self.beside)) | dict(_state(self.home))
        changed = [path for path in self._before.keys() | now.keys() if self._before.get(path) != now.get(path)]
        own = (str(self.home / ".config"), str(self.home / ".local"))
        return sorted(path for path in changed if path != str(self.home) and not path.startswith(own))

    def left_over(self) -> list[str]:
        """Temporary files that nobody cleared away; programs under Landlock keep one folder for each workspace."""
        kept = f"forge-{os.geteuid()}-"
        ours = [str(path.relative_to(self.root)) for path in self.workspace.rglob(".forge-tmp-*")]
        return ours + [f"temporary/{name}" for name in sorted(os.listdir(self.temporary)) if not name.startswith(kept)]

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _links(beside: Path) -> list[tuple[str, str]]:
    return [
        ("link-inside", "notes.txt"),
        ("link-outside", "../beside/secret.txt"),
        ("link-absolute", str(beside / "secret.txt")),
        ("link-to-directory", "../beside"),
        ("link-to-itself", "link-to-itself"),
        ("link-to-nothing", "not-there"),
        ("src/link-up", "../../beside/deep"),
    ]


def _rules() -> list[str]:
    """Reading and writing in the workspace, the server on loopback, and programs that harm nothing.

    In a sandbox every line that can be made of their names is let through, so that it is the sandbox that holds.
    """
    programs = [f"allow execute {name}{words}" for name in HARMLESS for words in ("", " *")]
    programs = programs if choose_tier() is Tier.NONE else ["allow execute *"]
    tools = [f"allow tool:{name}" for name in ("repeat", "say__*", "mcp_call", "bash_*", "test_runner")]
    browsing = ["allow tool:local_file_browser", "allow tool:debug_console"]
    return ["allow read", "allow write", "allow network", *programs, *tools, *browsing, *_PROGRAMS_STAY]


_PROGRAMS_STAY = ["deny write tools/**", "deny write tests/**"]  # what is run is what was laid out


def _pets(site: str) -> dict[str, Any]:
    identifier = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}}
    pet = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    body = {"required": True, "content": {"application/json": {"schema": pet}}}
    answers = {"200": {"description": "Fine."}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": site}],
        "paths": {
            "/pets": {
                "get": {"operationId": "listPets", "parameters": [limit], "responses": answers},
                "post": {"operationId": "createPet", "requestBody": body, "responses": answers},
            },
            "/pets/{id}": {"get": {"operationId": "getPet", "parameters": [identifier], "responses": answers}},
        },
    }


def _state(folder: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Everything below a directory: what it is, whose, how big, when written, and its bytes."""
    for place, directories, files in os.walk(folder):
        for name in ("", *directories, *files):
            path = Path(place, name)
            about = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(about.st_mode) else ""
            link = str(path.readlink()) if stat.S_ISLNK(about.st_mode) else ""
            yield (
                str(path),
                (about.st_mode, about.st_ino, about.st_nlink, about.st_size, about.st_mtime_ns, content, link),
            )
