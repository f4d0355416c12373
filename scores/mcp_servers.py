"""Ten published MCP servers, added with `forge mcp add`, started in the sandbox and called: `make mcp-servers`.

It downloads packages from npm and PyPI, so CI does not run it. It writes docs/mcp-servers.md.
"""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[1] / "docs" / "mcp-servers.md"
HEAD = """# Ten published MCP servers

`make mcp-servers` adds these servers with `forge mcp add`, starts them in the sandbox and calls their tools. Each is
installed from npm or PyPI, pinned with the hashes of all its packages, and sees its installation read-only. None has a
network, except where the table says so. A call that needs the internet was made without it.

| server | version | packages | settings | tools | calls |
|---|---|---|---|---|---|
"""


class Call(NamedTuple):
    tool: str
    arguments: Mapping[str, Any]
    needs: str = ""  # what the call needs and this machine may lack
    expects: str = ""  # a part of its result


class Published(NamedTuple):
    name: str
    command: str  # {project}, {page} are filled in
    calls: tuple[Call, ...]
    options: tuple[str, ...] = ()
    settings: str = ""


def list_servers(project: Path, page: str, browser: str) -> list[Published]:
    there = str(project)
    thought = {"thought": "One.", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False}
    entity = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
    browsing = ["--headless", "--isolated", "--no-sandbox", *(["--executable-path", browser] if browser else [])]
    return [
        Published(
            "everything",
            "npx -y @modelcontextprotocol/server-everything",
            (Call("echo", {"message": "hello"}, expects="hello"), Call("get-sum", {"a": 2, "b": 3}, expects="5")),
        ),
        Published(
            "filesystem",
            f"npx -y @modelcontextprotocol/server-filesystem {there}",
            (
                Call("write_file", {"path": f"{there}/note.txt", "content": "hello"}),
                Call("read_text_file", {"path": f"{there}/note.txt"}, expects="hello"),
                Call("list_directory", {"path": there}),
            ),
        ),
        Published(
            "memory",
            "npx -y @modelcontextprotocol/server-memory",
            (Call("create_entities", {"entities": [entity]}), Call("search_nodes", {"query": "Ada"}, expects="counts")),
            ("--env", f"MEMORY_FILE_PATH={there}/memory.jsonl"),
            "`MEMORY_FILE_PATH` in the workspace",
        ),
        Published(
            "thinking",
            "npx -y @modelcontextprotocol/server-sequential-thinking",
            (Call("sequentialthinking", thought),),
            ("--access", "none"),
            "`workspace: none`",
        ),
        Published(
            "git",
            f"uvx mcp-server-git --repository {there}",
            (Call("git_status", {"repo_path": there}), Call("git_log", {"repo_path": there}, expects="First")),
        ),
        Published(
            "time",
            "uvx mcp-server-time",
            (
                Call("get_current_time", {"timezone": "Europe/Oslo"}),
                Call(
                    "convert_time",
                    {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
                    expects="21:00",
                ),
            ),
            ("--access", "none"),
            "`workspace: none`",
        ),
        Published(
            "fetch",
            "uvx mcp-server-fetch --ignore-robots-txt --allow-private-ips",
            (
                Call("fetch", {"url": page, "raw": True}, expects="Read me"),
                Call("fetch", {"url": "https://example.com"}, "the internet"),
            ),
            ("--network", "--access", "none"),
            "`network: true`, `workspace: none`; a page on this machine",
        ),
        Published(
            "sqlite",
            f"uvx --with mcp<2 mcp-server-sqlite --db-path {there}/data.db",
            (
                Call("create_table", {"query": "CREATE TABLE t (a INTEGER)"}),
                Call("write_query", {"query": "INSERT INTO t VALUES (7)"}),
                Call("read_query", {"query": "SELECT a FROM t"}, expects="7"),
            ),
            settings="`--with mcp<2`: it does not work with newer ones",
        ),
        Published(
            "playwright",
            f"npx -y @playwright/mcp {' '.join(browsing)}",
            (Call("browser_navigate", {"url": page}, "" if browser else "a browser", "A page"),),
            ("--network",),
            "`network: true`; a page on this machine",
        ),
        Published(
            "context7",
            "npx -y @upstash/context7-mcp",
            (
                Call(
                    "resolve-library-id",
                    {"query": "how to route", "libraryName": "starlette"},
                    "the internet",
                    "/starlette",
                ),
            ),
            ("--network", "--access", "none"),
            "`network: true`, `workspace: none`",
        ),
    ]


def run_forge(project: Path, *words: str) -> dict[str, Any]:
    """Runs a command with --json and returns what it printed, or its error."""
    done = subprocess.run(
        [sys.executable, "-m", "forge", *words], cwd=project, capture_output=True, text=True, timeout=1200, check=False
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": " ".join((done.stderr or done.stdout).split())[-400:]}
    return found


def try_server(project: Path, server: Published) -> tuple[str, bool]:
    """Adds and calls a server. Returns its row of the table, and True if everything worked that can work here."""
    added = run_forge(
        project,
        "mcp",
        "add",
        server.name,
        "--yes",
        "--json",
        "--replace",
        *server.options,
        "--",
        *server.command.split(),
    )
    if "servers" not in added:
        return f"| {server.name} | | | | | cannot be added: {_cell(added.get('error', ''))} |", False
    (one,) = added["servers"]
    lock = one["locked"]
    cells = [f"`{lock['package']}`", lock["version"], str(lock["packages"]), server.settings or "none"]
    if one["error"]:
        return f"| {' | '.join(cells)} | 0 | does not start: {_cell(one['error'])} |", False
    said, works = [], True
    for call in server.calls:
        name = f"{server.name}__{call.tool}"
        result = run_forge(project, "tool", "call", name, json.dumps(call.arguments), "--yes")
        is_fine = bool(result.get("success")) and call.expects in result["for_llm"]
        works = works and (is_fine or bool(call.needs))
        failed = (
            f"needs {call.needs}"
            if call.needs
            else f"failed: {_cell(result.get('for_llm') or result.get('error', ''))}"
        )
        said.append(f"`{call.tool}` {'works' if is_fine else failed}")
        print(f"  {name}: {'ok' if is_fine else result.get('for_llm') or result.get('error')}"[:300], file=sys.stderr)
    return f"| {' | '.join(cells)} | {len(one['tools'])} | {', '.join(said)} |", works


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "/").split())[:200]


@contextmanager
def serve_page(folder: Path) -> Iterator[str]:
    """Serves a page on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    (folder / "index.html").write_text("<title>A page</title><h1>Hello</h1><p>Read me.</p>")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
        server.shutdown()


def find_browser() -> str:
    """Returns the path of a Chromium; "" if there is none."""
    names = ("/usr/lib/chromium/chromium", "chromium", "google-chrome")  # Debian's is a script that reads /etc first
    return next(filter(None, map(shutil.which, names)), "")


def main(names: list[str]) -> int:
    rows, works = [], True
    with tempfile.TemporaryDirectory() as name, serve_page(Path(tempfile.mkdtemp())) as page:
        project = Path(name).resolve()
        subprocess.run(["git", "init", "-q"], cwd=project, check=True)
        (project / "readme.txt").write_text("hello\n")
        author = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
        for words in (["add", "."], [*author, "commit", "-q", "-m", "First"]):
            subprocess.run(["git", *words], cwd=project, check=True)
        (project / "forge.yaml").write_text("# ten servers\n")
        run_forge(project, "trust", "--yes", "--json")
        for server in list_servers(project, page, find_browser()):
            if not names or server.name in names:
                began = time.monotonic()
                row, is_fine = try_server(project, server)
                print(f"{server.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
                rows.append(row)
                works = works and is_fine
    if not names:
        DOCS.write_text(HEAD + "\n".join(rows) + "\n")
    print("\n".join(rows))
    return 0 if works else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
