"""A project for a test: files in its own directory, and `forge` run in it as a user would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.provider import ProviderError
from forge.testing.workbench import Bench

Content = str | bytes | Mapping[str, Any] | Sequence[Any]
STATE = ".forge"  # Forge's own, which no test is about
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "PYTHONPATH", "VIRTUAL_ENV")


@contextmanager
def project(files: Mapping[str, Content] | None = None, /, **more: Content) -> Iterator[Project]:
    """A project with these files, for as long as the block runs.

    A text that begins with a new line is dedented; an object or a list becomes JSON, or YAML where the name says so.
    """
    folder = Path(tempfile.mkdtemp(prefix="forge-project-")).resolve()
    try:
        made = Project(folder / "project", home=folder / "home")
        made.write({**(files or {}), **more})
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a program."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """The output, read as JSON."""
        return json.loads(self.output)

    @property
    def lines(self) -> list[Any]:
        """The output with a JSON value in every line, as `forge run --json` writes it."""
        return [json.loads(line) for line in self.output.splitlines() if line.strip()]


class Project:
    """A directory with files. `home` is the home directory of programs that run in it."""

    def __init__(self, path: Path, home: Path | None = None) -> None:
        self.path = path.resolve()
        self.home = (home if home is not None else path.with_name(f"{path.name}-home")).resolve()
        for folder in (self.path, self.home):
            folder.mkdir(parents=True, exist_ok=True)
        self._before: dict[str, bytes] = {}

    def write(self, files: Mapping[str, Content]) -> None:
        """Writes files and creates directories. `changes` counts from here."""
        for name, content in files.items():
            file = self.path / _inside(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(_bytes(name, content))
        self._before = self._content()

    def read(self, name: str) -> str:
        return (self.path / _inside(name)).read_text(encoding="utf-8")

    def changes(self) -> dict[str, str]:
        """Returns files that were "added", "changed" or "removed" since the last `write`, without Forge's own state."""
        before, after = self._before, self._content()
        found = {name: "removed" for name in before if name not in after}
        found |= {
            name: "changed" if name in before else "added" for name, data in after.items() if before.get(name) != data
        }
        return dict(sorted(found.items()))

    def scope(self, session_id: str = "test") -> Scope:
        """Returns the scope for `agent.run(prompt, scope=project.scope())`."""
        return Scope(session_id=session_id, workspace=self.path)

    def bench(self, *tools: Any, **settings: Any) -> Bench:
        """Returns a bench with tools in this project."""
        return Bench(*tools, workspace=self.path, **settings)

    def script(self, *turns: Any) -> str:
        """Returns the `--model` name of a model with these turns. Texts, calls and failures only."""
        file = self.home / f"script-{len(list(self.home.glob('script-*.json'))) + 1}.json"
        file.write_text(json.dumps([_turn(turn) for turn in turns]), encoding="utf-8")
        return f"scripted:{file}"

    def forge(
        self, *arguments: str, input: str = "", environment: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> Finished:
        """Runs `forge` here in its own process: without a terminal, and without the user's keys and settings."""
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "forge", *arguments],  # -P: files of the project are not our modules
            cwd=self.path,
            env={**passed_on, "HOME": str(self.home), "NO_COLOR": "1", **(environment or {})},
            input=input,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def _content(self) -> dict[str, bytes]:
        found = {}
        for folder, folders, files in os.walk(self.path):
            folders[:] = [name for name in folders if name != STATE]
            for name in files:
                file = Path(folder, name)
                found[file.relative_to(self.path).as_posix()] = (
                    os.readlink(file).encode() if file.is_symlink() else file.read_bytes()
                )
        return found

    def __truediv__(self, name: str) -> Path:
        return self.path / _inside(name)

    def __repr__(self) -> str:
        return f"<Project {self.path}>"


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name!r} is not a file of the project: use a path relative to the project, without '..'")
    return path


def _bytes(name: str, content: Content) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return (textwrap.dedent(content[1:]) if content.startswith("\n") else content).encode()
    if name.endswith((".yaml", ".yml")):
        import yaml

        return yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False, allow_unicode=True).encode()
    return json.dumps(content, ensure_ascii=False, indent=2).encode() + b"\n"


def _turn(turn: Any) -> Any:
    parts = turn if isinstance(turn, list | tuple) else [turn]
    if len(parts) == 1 and isinstance(parts[0], ProviderError):
        error = parts[0]
        wire = {"message": error.message, "kind": str(error.kind), "passing": error.passing, "status": error.status}
        return {"error": {key: value for key, value in wire.items() if value}}
    if not all(isinstance(part, str | ToolCall) for part in parts):
        raise TypeError(
            f"script({turn!r}): a script file can have only texts, calls and failures; use Scripted(…) in the process"
        )
    text = "".join(part for part in parts if isinstance(part, str))
    made = [{"call": part.name, "arguments": _call_entry(part)} for part in parts if isinstance(part, ToolCall)]
    return {**({"text": text} if text or not made else {}), **({"calls": made} if made else {})}


def _call_entry(call: ToolCall) -> Any:
    return call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
