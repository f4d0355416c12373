"""Other programs that apply the same calls: codex's own binary, aider's functions, opencode's replacers."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from scores.packages import from_pypi, installed_from_npm, node
from scores.report import Missing

AIDER = "0.86.2"
CODEX = "0.169.0"
OPENCODE = "d545d8fba57283528db69281f59c803c646eb7e9"
ESBUILD = "0.28.2"
DIFF_MATCH_PATCH = "20241021"
_SECONDS = 60.0
_EDIT = "packages/opencode/src/tool/edit.ts"

Call = str | list[tuple[str, str]]


class Peer(NamedTuple):
    """A program that applies calls of one form."""

    name: str
    form: str
    apply: Callable[[Path, Any], str]  # changes the file; returns the reason of a refusal, else ""


def find_peers(repositories: Path, place: Path) -> tuple[list[Peer], list[str]]:
    """The programs that can be had here, and the reasons for the others."""
    peers: list[Peer] = []
    absent: list[str] = []
    finders: tuple[Callable[[], list[Peer]], ...]
    finders = (_find_aider, partial(_find_opencode, repositories, place), _find_codex)
    for find in finders:
        try:
            peers += find()
        except Missing as missing:
            absent.append(str(missing))
    return peers, absent


def _find_codex() -> list[Peer]:
    folder = installed_from_npm("@openai/codex", CODEX)
    programs = sorted(folder.parent.glob("codex-*/vendor/*/bin/codex"))
    if not programs:
        raise Missing(f"codex {CODEX} from npm has no program for this machine")
    return [Peer(f"codex {CODEX}", "envelope", lambda path, call: _run_codex(programs[0], path, call))]


def _run_codex(program: Path, path: Path, patch: str) -> str:
    argv = [str(program), "--codex-run-as-apply-patch", patch]
    ended = subprocess.run(argv, cwd=path.parent, capture_output=True, timeout=_SECONDS, check=False)
    return (
        (ended.stderr.decode(errors="replace").strip() or f"exit code {ended.returncode}") if ended.returncode else ""
    )


def _find_aider() -> list[Peer]:
    """Takes the functions of aider's modules alone: their classes need all of aider's requirements."""
    coders = from_pypi("aider-chat", AIDER) / "aider" / "coders"
    folder = str(from_pypi("diff-match-patch", DIFF_MATCH_PATCH))
    if folder not in sys.path:
        sys.path.append(folder)
    blocks = _load_functions(coders / "editblock_coder.py", {})
    diffs = _load_functions(coders / "udiff_coder.py", _load_functions(coders / "search_replace.py", {}))

    def edit(path: Path, call: list[tuple[str, str]]) -> str:
        text = path.read_text("utf-8")  # as aider does: it knows one line ending, the machine's
        for old, new in call:
            changed = blocks["do_replace"](str(path), text, old, new, blocks["DEFAULT_FENCE"])
            if not changed:
                return "no match"
            text = changed
        path.write_text(text, "utf-8")
        return ""

    def patch(path: Path, call: str) -> str:
        text, refusal = path.read_text("utf-8"), ""
        hunks = [diffs["normalize_hunk"](hunk) for _, hunk in diffs["find_diffs"](f"```diff\n{call}```\n")]
        for hunk in hunks:
            try:
                changed = diffs["do_replace"](str(path), text, hunk) if hunk else text
            except diffs["SearchTextNotUnique"]:
                changed = None
            refusal = refusal if changed else "no match"
            text = changed or text
        path.write_text(text, "utf-8")
        return refusal if hunks else "no hunk"

    return [Peer(f"aider {AIDER}", "edit", edit), Peer(f"aider {AIDER}", "diff", patch)]


def _load_functions(file: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a module without the imports of its own package and the classes that need them."""

    def is_usable(node: ast.stmt) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom):
            level = getattr(node, "level", 0)
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            usable = {*sys.stdlib_module_names, "diff_match_patch"}
            return level == 0 and all(name.partition(".")[0] in usable for name in names)
        bases = (
            {base.id for base in node.bases if isinstance(base, ast.Name)} if isinstance(node, ast.ClassDef) else set()
        )
        return "Coder" not in bases and isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign)

    tree = ast.parse(file.read_text("utf-8"))
    tree.body = [node for node in tree.body if is_usable(node)]
    names: dict[str, Any] = {**known, "__name__": f"aider_{file.stem}"}
    exec(compile(tree, str(file), "exec"), names)
    return names


def _find_opencode(repositories: Path, place: Path) -> list[Peer]:
    """Takes the replacers and `replace` of opencode's edit tool; the tool around them needs all of opencode."""
    repository = repositories / "opencode"
    argv = ["git", "-c", "safe.directory=*", "-C", str(repository), "show", f"{OPENCODE}:{_EDIT}"]
    shown = subprocess.run(argv, capture_output=True, check=False) if repository.exists() else None
    if shown is None or shown.returncode:
        raise Missing(f"opencode: {repository} is not a clone with the commit {OPENCODE[:10]}")
    source = shown.stdout.decode()
    endings, replacers = source.find("function normalizeLineEndings"), source.find("export type Replacer")
    locks = source.find("const locks")
    if not 0 <= endings < locks < replacers:
        raise Missing(f"opencode: {_EDIT} has another form than expected")
    (place / "edit.ts").write_text(source[endings:locks] + source[replacers:] + _SERVE, "utf-8")
    esbuild = installed_from_npm("esbuild", ESBUILD) / "bin" / "esbuild"
    argv = [node(), str(esbuild), "edit.ts", "--platform=node", "--format=esm", "--outfile=edit.mjs"]
    made = subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if made.returncode:
        raise Missing(f"opencode: esbuild: {made.stderr.strip()[:200]}")
    process = subprocess.Popen([node(), str(place / "edit.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def edit(path: Path, call: list[tuple[str, str]]) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"text": path.read_bytes().decode(), "edits": call}).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if "text" in answer:
            path.write_bytes(answer["text"].encode())
        return str(answer.get("error", ""))

    return [Peer("opencode", "edit", edit)]


# ours: what opencode's tool does around its `replace`, for one line of JSON after the other, until the input ends
_SERVE = """
import { createInterface } from "node:readline"
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line)
  let answer
  try {
    let text = asked.text
    for (const [before, after] of asked.edits) {
      const ending = detectLineEnding(text)
      const [old, now] = [before, after].map((one) => convertToLineEnding(normalizeLineEndings(one), ending))
      text = replace(text, old, now)
    }
    answer = { text }
  } catch (error) {
    answer = { error: String(error.message || error) }
  }
  process.stdout.write(JSON.stringify(answer) + "\\n")
}
"""
