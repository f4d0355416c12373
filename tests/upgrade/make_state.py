"""Makes what a version of Forge leaves behind, for the test that the next version goes on with it.

Run it with the Python of the version whose state is wanted, in a checkout of it, and name the archive by its commit:

    git worktree add --detach ../before COMMIT && cd ../before && make setup
    .venv/bin/python ../this/tests/upgrade/make_state.py ../this/tests/upgrade/made_by_COMMIT.tar.gz

It uses the command line alone, so that it works with every version. The archive has `project/` (a `forge.yaml`, scripts
for the scripted model, `.forge/` with its databases), `data/` (the trust store) and `made.json`: where it was made, by
which version, and the names of the runs. The test puts its own directory in the place of that one.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

CONFIG = """\
agent: {model: "scripted:scripts/queued.json", prompt: Be brief.}
permissions: {rules: [allow write notes.txt]}
sandbox: off
"""
WITH_SERVER = "mcpServers: {notes: {command: python3, args: [server.py]}}\n"  # only where it is named with --config
SERVER = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("id") is None:
        continue
    result = {"content": [{"type": "text", "text": "done"}]}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": ""}}
    elif asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        result = {"tools": [{"name": "note", "description": "Write a note.", "inputSchema": schema}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
SCRIPTS: dict[str, list[Any]] = {
    "first": [
        {"text": "Let me look. ", "call": "file_read", "arguments": {"path": "notes.txt"}},
        {"call": "file_write", "arguments": {"path": "notes.txt", "content": "two\n"}},
        "It says two now.",
    ],
    "second": [{"call": "math_calculate", "arguments": {"expression": "6 * 7"}}, "It is 42."],
    "open": [{"call": "bash", "arguments": {"command": "touch started; sleep 20"}}, "It was never said."],
    "finished": [{"call": "math_calculate", "arguments": {"expression": "6 * 7"}}, "It was 42."],
    "approval": [{"call": "bash", "arguments": {"command": "echo one >> done.txt"}}, "It is written."],
    "question": [{"call": "ask_question", "arguments": {"question": "Which one?"}}, "Then it is that one."],
    "queued": [{"call": "file_read", "arguments": {"path": "notes.txt"}}, "It was worked on."],
}
WAITS = 3  # the exit code of a run that waits for a person


class Maker:
    """A project in a directory of its own, and the commands that are given there."""

    def __init__(self, root: Path) -> None:
        self.root, self.project = root, root / "project"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FORGE_")}
        self.environment = {
            **kept,
            "XDG_DATA_HOME": str(root / "data"),
            "XDG_CONFIG_HOME": str(root / "config"),
            "TZ": "UTC",
        }

    def prepare(self) -> None:
        (self.project / "scripts").mkdir(parents=True)
        (self.project / "forge.yaml").write_text(CONFIG)
        (self.project / "with_server.yaml").write_text(WITH_SERVER)
        (self.project / "server.py").write_text(SERVER)
        (self.project / "notes.txt").write_text("one\n")
        for name, turns in SCRIPTS.items():
            (self.project / "scripts" / f"{name}.json").write_text(json.dumps(turns))

    def forge(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "forge", *arguments],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != code:
            raise SystemExit(f"forge {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run(self, name: str, *more: str, code: int = 0) -> str:
        return self.forge("run", f"Do {name}.", "--model", f"scripted:scripts/{name}.json", *more, code=code)

    def run_durably(self, name: str, *more: str, code: int = 0) -> str:
        """The name of the run."""
        self.run(name, "--durable", *more, code=code)
        newest: str = json.loads(self.forge("runs", "list", "--json"))["runs"][0]["id"]
        return newest

    def kill_in_a_call(self) -> None:
        """A session that ends in a call which nobody answered: its process is killed while the call is under way."""
        command = ["run", "Do open.", "--model", "scripted:scripts/open.json", "--session", "open", "--yes"]
        process = subprocess.Popen(
            [sys.executable, "-m", "forge", *command],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started = self.project / "started"
        while not started.exists():
            if process.poll() is not None:
                raise SystemExit("the run that is to be killed ended by itself")
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        started.unlink()

    def settle(self) -> None:
        """Every database is one file, without a log beside it."""
        for path in (self.project / ".forge").glob("*.db"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.execute("VACUUM")


def make(root: Path) -> dict[str, Any]:
    maker = Maker(root)
    maker.prepare()
    maker.forge("trust", "--yes")
    maker.run("first", "--session", "talk")
    maker.run("second", "--session", "talk")
    maker.kill_in_a_call()
    maker.forge("mcp", "approve", "notes", "--yes", "--config", "with_server.yaml")
    maker.forge("schedule", "add", "@daily", "Look at the notes.", "--id", "look")
    runs = {
        "finished": maker.run_durably("finished"),
        "approval": maker.run_durably("approval", code=WAITS),
        "question": maker.run_durably("question", code=WAITS),
        "queued": maker.run_durably("queued", "--detach"),
    }
    maker.settle()
    return {"root": str(root), "version": maker.forge("--version").strip(), "runs": runs}


def main(archive: str) -> None:
    with tempfile.TemporaryDirectory(prefix="forge-state-") as folder:
        root = Path(folder).resolve()
        made = json.dumps(make(root), indent=1).encode()
        with tarfile.open(archive, "w:gz") as tar:
            for name in ("project", "data"):
                tar.add(root / name, name, filter=_without_who)
            entry = tarfile.TarInfo("made.json")
            entry.size = len(made)
            tar.addfile(entry, io.BytesIO(made))


def _without_who(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The same file, of nobody in particular."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry if entry.isfile() or entry.isdir() else None


if __name__ == "__main__":
    main(sys.argv[1])
