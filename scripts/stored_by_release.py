"""Writes what a project of this release has stored, for tests of later ones: `make stored RELEASE=0.2`.

Durable runs (finished, waiting for an approval, queued) and a session, with the `forge.yaml` and the scripted models of
the release before. The test tests/packaging/test_stored_by_releases.py opens and continues them. The databases are SQL,
for people to read.
Until the release has a tag, its folder may be written again: it holds what the released code writes. Afterwards, it
never changes.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

STORED = Path(__file__).parents[1] / "tests" / "stored"


def main(release: str) -> None:
    target = STORED / release
    if (target / "runs.sql").exists() and _is_tagged(release):
        sys.exit(f"{target} was written at the time of that release. Name a new one.")
    if not target.exists():
        newest = max((path.parent for path in STORED.glob("*/runs.sql")), key=lambda path: _numbers(path.name))
        shutil.copytree(newest, target, ignore=shutil.ignore_patterns("*.sql"))
    with tempfile.TemporaryDirectory(prefix="forge-stored-") as made:
        folder = Path(made, "project")
        shutil.copytree(target, folder, ignore=shutil.ignore_patterns("*.sql"))
        variables = {"XDG_CONFIG_HOME": str(Path(made, "config")), "XDG_DATA_HOME": str(Path(made, "data"))}
        environment = {**os.environ, **variables}

        def forge(*words: str, code: int = 0) -> None:
            command = [sys.executable, "-m", "forge", *words, "--config", "forge.yaml"]
            done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False)
            if done.returncode != code:
                sys.exit(f"{' '.join(words)} ended with {done.returncode}, not {code}")

        talk = ("--model", "scripted:talk.yaml", "--quiet")
        forge("run", "--durable", "--session", "finished", "Say hello.", *talk)
        forge("run", "--durable", "--session", "waiting", "Write a note.", "--model", "scripted:write.yaml", code=3)
        forge(
            "run", "--durable", "--detach", "--session", "queued", "Say hello later.", "--model", "scripted:talk.yaml"
        )
        forge("run", "--session", "notes", "Remember the colour blue.", *talk)
        for database, name in ((folder / "runs.db", "runs.sql"), (folder / ".forge/state.db", "state.sql")):
            (target / name).write_text(_dump(database), encoding="utf-8")
            print(f"{target / name}: {(target / name).stat().st_size:,} bytes")


def _is_tagged(release: str) -> bool:
    asked = ["git", "-C", str(STORED), "tag", "--list", f"v{release}.*"]
    return bool(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def _numbers(release: str) -> list[int]:
    return [int(one) for one in release.split(".")]


def _dump(database: Path) -> str:
    with sqlite3.connect(database) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        lines = [f"PRAGMA user_version = {version};", *connection.iterdump()]
    connection.close()
    return "\n".join(lines).replace(socket.gethostname(), "machine.example") + "\n"


if __name__ == "__main__":
    main(sys.argv[1])
