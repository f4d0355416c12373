"""The official MCP conformance kit, both of its lines, against Forge's server and Forge's client."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scores.packages import installed_from_npm, node
from scores.report import ROOT, Row, Score

KIT = "@modelcontextprotocol/conformance"
STABLE, NEXT = "0.1.16", "0.2.0-alpha.12"
SOURCE = f"npm {KIT} {STABLE} and {NEXT}"
MEASURES = "The official conformance kit, for servers and clients, up to revision 2025-11-25 and for 2026-07-28."
_SECONDS = 900.0
REASONS = {
    "auth/2025-03-26-oauth-metadata-backcompat": "its authorization server names another issuer than its own address. "
    "RFC 8414 demands that a client refuses that, and so does this kit for 2026-07-28 (auth/metadata-issuer-mismatch)"
}
_DATED = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")  # the kit adds the time to a scenario's folder


def run() -> Score:
    rows = []
    with served() as url:
        for version, choice, revision in (
            (STABLE, ["--suite", "active"], "2025-11-25"),
            (NEXT, ["--requirements", "2026-07-28"], "2026-07-28"),
        ):
            rows.append(_counted(f"server, {revision}: checks", _checked(version, ["server", "--url", url, *choice])))
    command = shlex.join([sys.executable, "-m", "scores.mcp_client"])
    for version, revision in ((STABLE, "2025-11-25"), (NEXT, "2026-07-28")):
        choice = ["--requirements", revision] if version == NEXT else ["--suite", "all"]
        found = _checked(version, ["client", "--command", command, *choice])
        plain = {name: checks for name, checks in found.items() if "auth" not in name}
        login = {name: checks for name, checks in found.items() if "auth" in name}
        rows += [
            _counted(f"client, {revision}: scenarios without authorization", plain, by_scenario=True),
            _counted(f"client, {revision}: scenarios of authorization", login, by_scenario=True),
        ]
    return Score("mcp", SOURCE, MEASURES, rows)


@contextmanager
def served() -> Iterator[str]:
    """Forge's server on a free port."""
    argv = [sys.executable, "-m", "scores.mcp_server", "0"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().rpartition(" ")[2].strip()
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()


def _checked(version: str, words: list[str]) -> dict[str, list[dict[str, str]]]:
    """The kit's checks by scenario; a scenario that could not be run has one failed check."""
    kit = installed_from_npm(KIT, version) / "dist" / "index.js"
    with tempfile.TemporaryDirectory() as folder:
        argv = [node(), str(kit), *words, "--output-dir", folder]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        found: dict[str, list[dict[str, str]]] = {}
        for path in sorted(Path(folder).rglob("checks.json")):
            name = _DATED.sub("", "/".join(path.parent.relative_to(folder).parts)).removeprefix("server-")
            found[name] = json.loads(path.read_text(encoding="utf-8"))
    if not found:
        raise RuntimeError(f"the kit wrote no result: {(ended.stderr or ended.stdout)[-500:]}")
    return found


def _counted(measure: str, found: dict[str, list[dict[str, str]]], *, by_scenario: bool = False) -> Row:
    failures, statuses, passed = [], Counter[str](), 0
    for name, checks in found.items():
        bad = [check for check in checks if check["status"] == "FAILURE"]
        statuses.update(check["status"] for check in checks)
        passed += not bad and any(check["status"] == "SUCCESS" for check in checks)
        said = "; ".join(
            f"{check.get('id', '')}: {check.get('errorMessage') or check.get('description')}" for check in bad
        )
        if bad:
            failures.append(f"{name}: {REASONS.get(name) or said}")
    if by_scenario:
        return Row(measure, passed, len(found), failures=failures)
    return Row(measure, statuses["SUCCESS"], statuses["SUCCESS"] + statuses["FAILURE"], failures=failures)
