"""Schemathesis, which invents requests from a document, against the console's API and the MCP server over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scores.report import Missing, Row, Score

MEASURES = "Requests that Schemathesis invents, against Forge's own HTTP endpoints: no server error, no hang."
SOURCE = "PyPI schemathesis"
EXAMPLES = 60  # requests of each operation and phase
SEED = 20261115
_SECONDS = 600.0
_WORKERS = "2" if sys.version_info >= (3, 12) else "1"  # two threads in the `ast` of Python 3.11 break each other
_LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/enter\?token=(\S+)")
_SERVED = re.compile(r"at http://127\.0\.0\.1:(\d+)/mcp")
_TOKEN = "a-token-of-some-length"


def run() -> Score:
    try:
        source = f"{SOURCE} {version('schemathesis')}"
    except PackageNotFoundError:
        raise Missing("schemathesis is not installed") from None
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        project.mkdir()
        (project / "notes.txt").write_text("hello\n", encoding="utf-8")
        environment = {**os.environ, "HOME": folder, "FORGE_SCORES_TOKEN": _TOKEN}
        with _console(project, environment) as (port, headers):
            console = _tested(console_document(), port, headers, folder)
        with _mcp(project, environment) as port:
            headers = {"Authorization": f"Bearer {_TOKEN}", "Accept": "application/json, text/event-stream"}
            mcp = _tested(mcp_document(), port, headers, folder)
    rows = [_row("console: operations without a server error", *console), _row("serve --http: the same", *mcp)]
    return Score("schemathesis", source, MEASURES, rows)


def console_document() -> dict[str, Any]:
    """The console's API as an OpenAPI document: its addresses, with a body of any kind."""
    from forge.console.server import GET, POST

    paths: dict[str, Any] = {}
    for method, table in (("get", GET), ("post", POST)):
        for path in table:
            names = re.findall(r"\{(\w+)(?::(\w+))?\}", path)
            plain = re.sub(r":\w+\}", "}", path)
            parameters: list[dict[str, Any]] = [
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "schema": {"type": "integer" if kind == "int" else "string"},
                }
                for name, kind in names
            ]
            if method == "get":
                parameters += [
                    {"name": name, "in": "query", "schema": {"type": "string"}}
                    for name in ("limit", "after", "before", "q", "query", "path", "status", "since")
                ]
            operation: dict[str, Any] = {"parameters": parameters, "responses": {"default": {"description": "any"}}}
            if method == "post":
                operation["requestBody"] = {"content": {"application/json": {"schema": _body(path)}}}
            paths.setdefault(plain, {})[method] = operation
    return {"openapi": "3.1.0", "info": {"title": "console", "version": "1"}, "paths": paths}


def _body(path: str) -> dict[str, Any]:
    names = "task prompt answer arguments rule reason tool name limits edited session text id turn call"
    return {"type": "object", "properties": {name: {} for name in names.split()}, "description": path}


def mcp_document() -> dict[str, Any]:
    """One address that takes JSON-RPC."""
    methods = ["initialize", "ping", "tools/list", "tools/call", "server/discover", "prompts/list", "logging/setLevel"]
    schema = {
        "type": "object",
        "required": ["jsonrpc", "method"],
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "integer"]},
            "method": {"anyOf": [{"enum": methods}, {"type": "string"}]},
            "params": {"type": "object"},
        },
    }
    version_header = {"name": "MCP-Protocol-Version", "in": "header", "schema": {"type": "string"}}
    operation = {
        "parameters": [version_header],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"default": {"description": "any"}},
    }
    return {"openapi": "3.1.0", "info": {"title": "mcp", "version": "1"}, "paths": {"/mcp": {"post": operation}}}


def _tested(document: dict[str, Any], port: int, headers: dict[str, str], folder: str) -> tuple[int, list[str]]:
    """The number of operations, and what failed."""
    path, report = Path(folder, "document.json"), Path(folder, "report.ndjson")
    path.write_text(json.dumps(document), encoding="utf-8")
    report.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "schemathesis.cli", "run", str(path), "--url", f"http://127.0.0.1:{port}"]
    argv += ["--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing", "-n", str(EXAMPLES)]
    argv += ["--seed", str(SEED), "--continue-on-failure", "--report", "ndjson", "--report-ndjson-path", str(report)]
    argv += ["--request-timeout", "20", "--suppress-health-check", "all", "--workers", _WORKERS, "--no-color"]
    for name, value in headers.items():
        argv += ["-H", f"{name}: {value}"]
    ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    count = sum(len(item) for item in document["paths"].values())
    parts = re.split(r"^_{3,} (\w+ /\S*) _{3,}$", ended.stdout, flags=re.MULTILINE)
    failures = [
        f"{label}: {' '.join(said.replace(sys.prefix, '…').split())[:400]}"
        for label, said in zip(parts[1::2], parts[2::2], strict=True)
    ]
    if ended.returncode not in (0, 1) or not report.exists():
        raise RuntimeError(f"schemathesis did not run: {(ended.stderr or ended.stdout)[-800:]}")
    if ended.returncode == 1 and not failures:
        failures = [ended.stdout[-600:]]
    return count, failures


def _row(measure: str, count: int, failures: list[str]) -> Row:
    return Row(measure, count - len(failures), count, failures=failures)


@contextmanager
def _console(project: Path, environment: dict[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    """A console of its own, entered as a browser enters it."""
    with _started(["console", "--port", "0"], _LINK, project, environment) as found:
        port = int(found[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", f"/enter?token={found[2]}", headers={"Host": f"127.0.0.1:{port}"})
        entered = connection.getresponse()
        cookie = (entered.getheader("set-cookie") or "").partition(";")[0]
        token = (entered.getheader("location") or "").rpartition("/")[2]
        if entered.status != 303:
            raise RuntimeError(f"the console cannot be entered: {entered.status} {entered.read()[:200]!r}")
        yield port, {"Cookie": cookie, "x-forge-token": token}


@contextmanager
def _mcp(project: Path, environment: dict[str, str]) -> Iterator[int]:
    words = ["serve", "--http", "--port", "0", "--token-env", "FORGE_SCORES_TOKEN"]
    with _started(words, _SERVED, project, environment) as found:
        yield int(found[1])


@contextmanager
def _started(
    words: list[str], pattern: re.Pattern[str], project: Path, environment: dict[str, str]
) -> Iterator[re.Match[str]]:
    """A command of Forge, once it printed the line that the pattern finds."""
    argv = [sys.executable, "-m", "forge", *words]
    with subprocess.Popen(
        argv, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        try:
            assert program.stdout is not None
            said = []
            for line in program.stdout:
                said.append(line)
                if found := pattern.search(line):
                    yield found
                    return
            raise RuntimeError(f"forge {words[0]} ended: {''.join(said)[-500:]}")
        finally:
            program.terminate()
