"""Runs real MCP clients on `forge serve`, and writes their table into the docs: `python -m scripts.mcp_clients`.

Each client has an environment of its own in `.venv-mcp-clients`. `python -m scripts.mcp_clients NAME …` runs some of
them and prints the table only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peer_environments import NotInstalledError, install
from benchmarks.peer_environments import run as run_maker
from scores.packages import node, npm
from scripts.mcp_clients.inspector import use_inspector

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv-mcp-clients"
PROGRAMS = Path(__file__).parent / "programs"
PAGE = ROOT / "docs" / "other-peoples-tools.md"
LONGEST = 180  # seconds of one client
STEPS = {"list": "lists the tools", "call": "calls one", "error": "gets an error", "cancel": "cancels a call"}
TOKEN = "the-token-of-this-table"  # noqa: S105 - a server on loopback, for minutes
PYTHON = {  # the client, its package, its program
    "Python SDK": ("mcp", "python_sdk.py"),
    "FastMCP": ("fastmcp", "fastmcp_client.py"),
    "LangChain adapters": ("langchain-mcp-adapters", "langchain_adapters.py"),
    "OpenAI Agents": ("openai-agents", "openai_agents.py"),
    "Pydantic AI": ("pydantic-ai-slim[mcp]", "pydantic_ai_client.py"),
}
NODE = {"TypeScript SDK": "@modelcontextprotocol/sdk", "Inspector": "@modelcontextprotocol/inspector"}


def main() -> int:
    wanted = sys.argv[1:] or [*PYTHON, *NODE]
    if unknown := [name for name in wanted if name not in (*PYTHON, *NODE)]:
        print(f"no such client: {', '.join(unknown)}; there are {', '.join((*PYTHON, *NODE))}", file=sys.stderr)
        return 2
    rows = [run_client(name) for name in wanted]
    table = "\n".join([f"| client | version | {' | '.join(STEPS.values())} |", f"|{'---|' * (len(STEPS) + 2)}", *rows])
    print(table)
    if not sys.argv[1:]:
        marks = ("<!-- clients: written by `make mcp-clients` -->", "<!-- end of clients -->")
        text = PAGE.read_text(encoding="utf-8")
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
        PAGE.write_text(pattern.sub(lambda _: f"{marks[0]}\n{table}\n{marks[1]}", text), encoding="utf-8")
    return 1 if any(re.search(r"\| [^|]*\bno\b", row) for row in rows) else 0


def run_client(name: str) -> str:
    """Runs a client over stdio and over HTTP. Returns its row."""
    try:
        version = _prepare(name)
    except NotInstalledError as error:
        return f"| {name} | not installed: {error} |" + " |" * len(STEPS)
    found = {}
    for way in ("stdio", "http"):
        with tempfile.TemporaryDirectory() as folder:
            found[way] = _run_once(name, way, Path(folder))
            print(f"{name} over {way}: {found[way]}", file=sys.stderr)
    cells = [" ".join(dict.fromkeys(_say(found[way].get(step), way) for way in found)) for step in STEPS]
    return f"| {name} | {version} | {' | '.join(_merge(cell) for cell in cells)} |"


def _say(seen: Any, way: str) -> str:
    return "yes" if seen is True else f"— ({way})" if seen == "none" else f"no ({way})"


def _merge(cell: str) -> str:
    return "no" if cell == "no (stdio) no (http)" else cell.replace(" ", ", ", 1) if cell.count("(") == 1 else cell


def _prepare(name: str) -> str:
    """Makes the environment of a client. Returns its version."""
    if name in NODE:
        place = _node_place(name)
        place.mkdir(parents=True, exist_ok=True)
        described = place / "node_modules" / NODE[name] / "package.json"
        if not described.exists():
            flags = ["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", str(place)]
            run_maker([*npm(), *flags, NODE[name]])
        return str(json.loads(described.read_text(encoding="utf-8"))["version"])
    package = PYTHON[name][0]
    place = HOME / package.partition("[")[0]
    if not (place / "done").exists():
        run_maker([sys.executable, "-m", "venv", str(place)])
        install(place, package)
        (place / "done").touch()
    ask = f"from importlib.metadata import version; print(version({package.partition('[')[0]!r}))"
    return subprocess.run(
        [str(place / "bin" / "python"), "-c", ask], capture_output=True, text=True, check=True
    ).stdout.strip()


def _node_place(name: str) -> Path:
    return HOME / NODE[name].rpartition("/")[2]


def _run_once(name: str, way: str, folder: Path) -> dict[str, Any]:
    mark = f"6{os.getpid()}.{time.monotonic_ns() % 10_000}"  # its program is found by this number
    said: dict[str, Any] = {"begun": str(folder / "begun"), "waits": f"echo > begun; sleep {mark}"}
    with _serving(way, folder) as where:
        said |= where
        seen = use_inspector(node(), _node_place(name), said) if name == "Inspector" else _run_program(name, said)
        if seen.get("cancel") is True:
            seen["cancel"] = _has_ended(mark)
    return seen


def _run_program(name: str, said: dict[str, Any]) -> dict[str, Any]:
    if name in NODE:
        program = _node_place(name) / "typescript_sdk.mjs"
        program.write_text((PROGRAMS / "typescript_sdk.mjs").read_text(encoding="utf-8"), encoding="utf-8")
        argv = [node(), str(program), json.dumps(said)]
    else:
        package, program_name = PYTHON[name]
        python = HOME / package.partition("[")[0] / "bin" / "python"
        argv = [str(python), str(PROGRAMS / program_name), json.dumps(said)]
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return {"problem": f"not done after {LONGEST} seconds"}
    lines = ended.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        return {"problem": ended.stderr[-500:]}


@contextmanager
def _serving(way: str, folder: Path) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "forge", "serve", "--workspace", str(folder), "--yes", "--no-audit"]
    if way == "stdio":
        yield {"command": command}
        return
    argv = [*command, "--http", "--port", "0", "--token-env", "FORGE_TABLE_TOKEN"]
    environment = {**os.environ, "FORGE_TABLE_TOKEN": TOKEN}
    with subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split(" at ")[1].split(";")[0].strip()
            yield {"url": url, "token": TOKEN}
        finally:
            process.terminate()


def _has_ended(mark: str) -> bool:
    """Waits until no process has this number in its command line."""
    for _ in range(100):
        if not any(mark.encode() in _command_of(one) for one in Path("/proc").glob("[0-9]*/cmdline")):
            return True
        time.sleep(0.1)
    return False


def _command_of(file: Path) -> bytes:
    try:
        found = file.read_bytes()
    except OSError:
        return b""
    return found if found.startswith(b"sleep\0") else b""


if __name__ == "__main__":
    sys.exit(main())
