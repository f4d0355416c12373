"""Bundles TypeScript to JavaScript with esbuild, for a Node that cannot read types: cached by content, outside the
workspace.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.process.running.run import Capture, Confinement, run
from forge.process.scripts.runtimes import Runnable

MOST_BUNDLES = 200  # bundles; the oldest go first
MOST_BYTES = 16 * 1024 * 1024  # of one bundle
SECONDS = 60.0

_REQUIRE = 'import{createRequire as _r}from"node:module";const require=_r(import.meta.url);'
_OPTIONS = (
    *("--bundle", "--platform=node", "--format=esm", "--log-level=error"),
    *("--outfile=/dev/stdout", "--metafile=/dev/stderr", f"--banner:js={_REQUIRE}"),
)


async def bundle_script(
    script: Runnable, esbuild: str, *, confinement: Confinement, sandbox: str | bool, env: Mapping[str, str]
) -> Path:
    """Returns the file to run instead, alone in its directory. Raises `ToolError` if the script cannot be bundled.

    esbuild runs as confined as the script itself, since imported files become a part of the bundle.
    """
    known = _folder() / _digest(f"{script.digest} {esbuild} {os.stat(esbuild).st_mtime_ns}".encode())
    if (known / "tool.mjs").is_file():
        return known / "tool.mjs"
    finished = await run(
        [esbuild, str(script.location.path), *_OPTIONS],
        cwd=confinement.workspace,
        env=env,
        timeout=SECONDS,
        capture=Capture(MOST_BYTES, 0),
        confinement=confinement,
        sandbox=sandbox,
    )
    if finished.exit_code != 0 or finished.cut:
        why = f"more than {MOST_BYTES // 1024 // 1024} MiB" if finished.cut else finished.errors.strip()[:1_000]
        raise ToolError(f"{script.path} cannot be converted to JavaScript: {why}", ErrorKind.USER, "Fix the script.")
    # otherwise an imported file may change while the script does not
    is_alone = len(_parse_inputs(finished.errors)) == 1
    target = known if is_alone else _folder() / _digest(finished.output.encode())
    return _store_bundle(target, finished.output)


def _parse_inputs(said: str) -> list[str]:
    try:
        return list(json.loads(said)["inputs"])
    except (ValueError, KeyError, TypeError):
        return []


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "forge" / "scripts"


def _store_bundle(target: Path, content: str) -> Path:
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _tidy(folder)
    temporary = folder / f".forge-tmp-{secrets.token_hex(8)}"
    temporary.mkdir(mode=0o700)
    (temporary / "tool.mjs").write_text(content, encoding="utf-8")
    try:
        temporary.rename(target)
    except OSError:  # another process made the same
        shutil.rmtree(temporary, ignore_errors=True)
    return target / "tool.mjs"


def _tidy(folder: Path) -> None:
    bundles = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    if len(bundles) >= MOST_BUNDLES:
        for entry in sorted(bundles, key=lambda one: one.stat().st_mtime)[: len(bundles) - MOST_BUNDLES + 1]:
            shutil.rmtree(entry.path, ignore_errors=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
