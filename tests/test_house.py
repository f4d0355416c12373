"""The house stays in order: folders say what belongs there, no opaque names, docstrings that say what a thing does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import forge

PACKAGE = Path(forge.__file__).parent
OPAQUE = frozenset(
    "sitting attended paper kept calmed travelling turns_on looking meaning place once foresee settling subject home "
    "wishes ground told shown found asked heard mended".split()
)
PUBLIC = ("schedules/runner.py: once", "testing/person.py: asked")  # names that users call
RIDDLE = re.compile(r"(What|Which|Whether|Where|How|Those|The same|Of|That|Who)\b")
FOLDERS = sorted({file.parent for file in PACKAGE.rglob("*.py") if "builtin" not in file.parts})
FILES = sorted(file for file in PACKAGE.rglob("*.py") if "builtin" not in file.parts)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_a_folder_says_what_belongs_there(folder):
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


def test_no_name_is_opaque_and_no_docstring_is_a_riddle():  # one test: the files are read once
    opaque = [f"{file.relative_to(PACKAGE)}: {name}" for file in FILES for name in _opaque(file)]
    assert not set(opaque) - set(PUBLIC), "\n".join(opaque)
    riddles = [
        f"{file.relative_to(PACKAGE)}: {text}" for file in FILES for text in _docstrings(file) if RIDDLE.match(text)
    ]
    assert not riddles, "\n".join(riddles)


@pytest.mark.parametrize("text", ["What it is.", "Whether it may.", "Which runs."])
def test_a_riddle_is_seen(text):
    assert RIDDLE.match(text)
    assert not RIDDLE.match("Returns the ids of cancelled runs.")


def _opaque(file: Path) -> Iterator[str]:
    if file.stem.strip("_") in OPAQUE:
        yield file.name
    yield from (name for name in _read(file)[0] if name.strip("_").lower() in OPAQUE)


def _docstrings(file: Path) -> list[str]:
    return _read(file)[1]


@cache
def _read(file: Path) -> tuple[list[str], list[str]]:
    """The names of functions and classes, and the first lines of docstrings."""
    names, docstrings = [], []
    todo: list[ast.AST] = [ast.parse(file.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            if not isinstance(node, ast.Module):
                names.append(node.name)
            if text := ast.get_docstring(node):
                docstrings.append(text.split("\n")[0])
        if isinstance(node, ast.stmt | ast.Module | ast.excepthandler | ast.match_case):  # expressions have none
            todo += (one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.expr))
    return names, docstrings
