"""Hooks that are commands: JSON on stdin, a decision as JSON on stdout, in the sandbox of the project's programs."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from forge.agent.hooks import HookDecision, HookDecorator, HookFailed, HookKind, TurnContext
from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.plain_values import plain
from forge.core.result import ToolResult
from forge.core.untrusted import clean
from forge.process.environment import shell_environment
from forge.process.running.output import Capture, OutputPlan
from forge.process.running.run import FinishedProgram, run
from forge.process.sandbox.layout import confinement_of, is_inside
from forge.workspace.paths import PathValidator

if TYPE_CHECKING:
    from forge.agent.agent import Agent
    from forge.project.config.declaration import Configuration
    from forge.project.config.hooks import TurnHookEntry

BLOCKS = 2  # the exit code of a command that blocks; stderr has the reason
LONGEST_OUTPUT = 256 * 1024  # bytes of each stream
MOST_OF_ERRORS = 2_000  # characters, the last ones
SPARE = 15.0  # seconds beyond the time limit, in which the program and its children are ended
_SCRIPTS = (".py", ".sh", ".bash", ".js", ".mjs", ".ts", ".rb", ".pl", ".php")
_RUN_FOLDERS = ("python", "pypy", "node", "bun")  # programs that run a folder
_INTERPRETER = re.compile(r"(ba|da|z|k)?sh|source|\.|(python|pypy|node|bun|ruby|perl|php)[\d.]*")
_DEEPEST = 5  # command lines within command lines
_RUNS_TEXT = re.compile(r"-\w*[ceS]|eval|trap")  # the words after it may be a command line, as in `sh -c "…"`
_SPACE = re.compile(r"[\s;|&<>()`]")
_HERE = re.compile(r"\$PWD\b|\$\{PWD\}|\$\(pwd\)|`pwd`")
FOLDER = "hooks"  # a folder of this name is protected as a whole
_KEYS = tuple(field.name for field in fields(HookDecision))
_FIX = "Go on without it. The person can fix the hook."


def add_hooks(agent: Agent[Any, Any], configuration: Configuration) -> None:
    """Gives an agent the hooks of the configuration. Raises `ToolError` for a pattern that cannot be read."""
    sandbox = "required" if configuration.sandbox == "auto" else configuration.sandbox
    for kind, entry in configuration.all_hooks:
        name = entry.name or entry.command[:80]
        hook = CommandHook(cast(HookKind, kind), entry, name, sandbox)
        decorate: HookDecorator[Any] = getattr(agent, kind)
        try:
            decorate(match=getattr(entry, "match", ()), timeout=entry.timeout + SPARE, name=name)(hook)
        except DefinitionError as error:
            raise configuration.error(f"{entry.key_path}.match", str(error)) from None


def list_protected(configuration: Configuration, workspace: Path) -> tuple[str, ...]:
    """Returns the files that the hooks' commands name: a model that changed one would change the hook.

    The folder `hooks` is always one of them. Of a file in a folder of this name, the whole folder: what the file
    imports is often beside it. A folder with another name counts only if it is run, as in `python3 checks`.
    """
    named = list_named(configuration, workspace)
    return tuple(dict.fromkeys((FOLDER, *named))) if configuration.all_hooks else ()


def list_named(configuration: Configuration, workspace: Path) -> tuple[str, ...]:
    """Returns the files and folders of the workspace that the hooks' commands name, as far as they are recognised."""
    files = (one for _, entry in configuration.all_hooks for one in _find_files(entry.command, str(workspace)))
    return tuple(dict.fromkeys(map(_widen, files)))


def _find_files(command: str, workspace: str, inside: str = "", depth: int = 0) -> Iterator[str]:
    """Yields the files of a command line, by their paths in the workspace. `inside`: the folder it is run in."""
    folders = [inside]  # `cd` may fail, or be in a subshell: each folder counts from there on
    for words in _split_commands(command):
        names = [os.path.basename(word) for word in words]
        for position, name in enumerate(names[:-1]):
            if name in ("cd", "pushd"):
                folders.append(os.path.join(folders[-1], _expand(words[position + 1], workspace)))
        module, run = _find_run(words, names)
        for position, word in enumerate(words):
            is_code = "$(" in word or "`" in word or any(_RUNS_TEXT.fullmatch(one) for one in names[:position])
            for folder in folders:
                if is_code and _SPACE.search(word) and depth < _DEEPEST:
                    yield from _find_files(word, workspace, folder, depth + 1)
                for path in _paths_of(word, is_module=position == module):
                    path = os.path.join(folder, _expand(path, workspace))
                    yield from _find_file(path, workspace, is_run=position in (module, run))


def _find_run(words: list[str], names: list[str]) -> tuple[int, int]:
    """Returns the positions of the module, and of the file or folder, that an interpreter is to run; -1: none."""
    start = next((at for at, name in enumerate(names) if name.startswith(_RUN_FOLDERS)), len(words))
    for position in range(start + 1, len(words)):
        before = words[position - 1]
        if before.startswith("-") and before.endswith("m"):
            return position, -1
        if not words[position].startswith("-") and before not in ("-W", "-X"):
            return -1, position
    return -1, -1


def _paths_of(word: str, *, is_module: bool) -> Iterator[str]:
    """Yields the paths that a word may be: also the value of `--config=x.py` or `-fx.mk`, and a module's file."""
    if is_module:
        path = word.replace(".", "/")
        yield from (f"{path}.py", path)
    if not word.startswith("-"):
        yield word
    if "=" in word:
        yield word.partition("=")[2]
    elif word.startswith("-") and not word.startswith("--"):
        yield word[2:]


def _find_file(path: str, workspace: str, *, is_run: bool) -> Iterator[str]:
    path = os.path.normpath(os.path.join(workspace, path))
    if not is_inside(path, workspace):
        path, workspace = os.path.realpath(path), os.path.realpath(workspace)
    if not is_inside(path, workspace) or path == workspace or "\0" in path:
        return
    for one in [path, *(glob.glob(path) if glob.has_magic(path) else ())]:
        inner = os.path.relpath(one, workspace)
        is_script = (inner.endswith(_SCRIPTS) or _widen(inner) != inner) and not _SPACE.search(inner)
        if os.path.isfile(one) or (is_run and os.path.isdir(one)) or is_script:
            yield inner


def _expand(word: str, workspace: str) -> str:
    return _HERE.sub(lambda _: workspace, word)


def _split_commands(command: str) -> list[list[str]]:
    """Splits a command line into its simple commands, each as a list of words."""
    line = _HERE.sub("$PWD", command).replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&`")
    lexer.whitespace_split, lexer.commenters = True, ""
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word.strip("();<>|&`"):
                commands[-1].append(word)
            elif not set(word) <= set("<>"):
                commands.append([])
    except ValueError:  # a quote without its end
        commands = [re.split(r"[\s();<>|&`'\"]+", command)]
    return [words for words in commands if words]


def _widen(inner: str) -> str:
    parts = inner.split("/")
    return "/".join(parts[: parts.index(FOLDER) + 1]) if FOLDER in parts[:-1] else inner


class CommandHook:
    """Runs a command for each decision. One that fails, hangs or writes nonsense refuses."""

    def __init__(self, kind: HookKind, entry: TurnHookEntry, name: str, sandbox: str) -> None:
        self._kind, self._entry, self._name, self._sandbox = kind, entry, name, sandbox

    async def __call__(
        self, ctx: ToolContext | TurnContext[Any], result: ToolResult | None = None
    ) -> HookDecision | None:
        scope = ctx.scope
        paths = PathValidator.of(scope)
        confinement = replace(confinement_of(scope, paths), sandbox=self._sandbox)
        try:
            finished = await run(
                ["/bin/sh", "-c", self._entry.command],
                cwd=confinement.workspace,
                env={**shell_environment(), "PYTHONDONTWRITEBYTECODE": "1"},  # its folder is protected
                stdin=json.dumps(self._describe(ctx, result)).encode(),
                timeout=self._entry.timeout,
                output=OutputPlan(Capture(LONGEST_OUTPUT // 2, LONGEST_OUTPUT // 2)),
                confinement=confinement,
            )
        except ToolError as error:
            raise self._fail(f"cannot be run: {error.message}", error.suggestion) from error
        return self._read(finished)

    def _describe(self, ctx: ToolContext | TurnContext[Any], result: ToolResult | None) -> dict[str, Any]:
        """Returns what the command reads from stdin."""
        scope = ctx.scope
        said: dict[str, Any] = {
            "hook": self._kind,
            "session": scope.session_id,
            "agent": scope.agent,
            "user": scope.user,
            "workspace": str(scope.workspace),
        }
        if isinstance(ctx, ToolContext):
            said |= {"tool": ctx.spec.name, "arguments": plain(dict(ctx.arguments)), "call": ctx.call.id}
            return said if result is None else {**said, "result": result.for_llm, "is_error": result.is_error}
        said |= {"turn": ctx.turn, "tools": list(ctx.tools)}
        return {**said, **({"answer": ctx.answer} if self._kind == "on_end" else {"prompt": ctx.prompt})}

    def _read(self, finished: FinishedProgram) -> HookDecision | None:
        errors = clean(finished.errors[-MOST_OF_ERRORS:]).strip()
        if finished.timed_out:
            raise self._fail(f"gave no answer within {self._entry.timeout:g} s", kind=ErrorKind.TIMEOUT)
        if finished.exit_code == BLOCKS or (finished.exit_code and self._kind == "on_end"):
            return HookDecision(block=errors or f"it ended with exit code {finished.exit_code}, and gave no reason")
        if finished.exit_code != 0:
            how = finished.signal or f"exit code {finished.exit_code}"
            raise self._fail(f"failed with {how}: {errors or 'nothing on stderr'}")
        if finished.cut:
            raise self._fail(f"wrote more than {LONGEST_OUTPUT:,} bytes to stdout")
        text = finished.output.strip()
        if not text:
            return None
        if text.startswith("\ufeff"):
            raise self._fail("wrote a byte order mark to stdout before its JSON; write UTF-8 without one")
        try:
            said = json.loads(text, object_pairs_hook=self._refuse_repeated)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, Mapping):
            raise self._fail(f"wrote {clean(text[:80])!r} to stdout, which is not a JSON object")
        return HookDecision(**self._check_keys(said))

    def _check_keys(self, said: Mapping[str, Any]) -> dict[str, Any]:
        for key in said:
            if key not in _KEYS:
                raise self._fail(f"wrote the key {clean(str(key)[:80])!r}; known: {', '.join(_KEYS)}")
        if isinstance(block := said.get("block"), str) and block and not block.strip():
            raise self._fail("set 'block' to spaces; write the reason, or leave the key out")
        return dict(said)

    def _refuse_repeated(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        said = dict(pairs)
        if len(said) != len(pairs):
            raise self._fail("wrote a key of its JSON twice")
        return said

    def _fail(self, problem: str, hint: str = "", kind: ErrorKind = ErrorKind.SYSTEM) -> HookFailed:
        return HookFailed(
            f"asking the {self._kind} hook {self._name!r}: it {problem}", kind, " ".join(filter(None, (_FIX, hint)))
        )


def missing_programs(configuration: Configuration, workspace: Path) -> Iterator[tuple[str, str]]:
    """Yields the key path and the first word of each hook whose program is not found."""
    for _, entry in configuration.all_hooks:
        commands = _split_commands(entry.command)
        program = commands[0][0] if commands else ""
        if program and "=" not in program and "$" not in program and not _is_found(program, workspace, shutil.which):
            yield entry.key_path, program


def unprotected_scripts(configuration: Configuration, workspace: Path) -> Iterator[str]:
    """Yields the key path of each hook that seems to run a file, while none is found in its command."""
    for _, entry in configuration.all_hooks:
        words = [os.path.basename(word) for words in _split_commands(entry.command) for word in words]
        is_text = any(_RUNS_TEXT.fullmatch(word) or word == "-m" for word in words)
        runs_file = "$" in entry.command or (not is_text and any(_INTERPRETER.fullmatch(word) for word in words))
        found = _find_files(entry.command, str(workspace))
        if runs_file and not any(os.path.exists(workspace / one) for one in found):
            yield entry.key_path


def _is_found(program: str, workspace: Path, which: Any) -> bool:
    return bool(which(program)) or os.access(os.path.join(workspace, program), os.X_OK) or program in _SHELL_WORDS


_SHELL_WORDS = frozenset(": . [ cd echo exec exit export eval false for if printf read set test true while {".split())
