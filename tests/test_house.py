"""The house stays in order: small folders that say what belongs in them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import forge

PACKAGE = Path(forge.__file__).parent
MOST_FILES = 25
FOLDERS = sorted({file.parent for file in PACKAGE.rglob("*.py") if "builtin" not in file.parts})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_a_folder_has_few_files_and_says_what_belongs_there(folder):
    assert len(list(folder.glob("*.py"))) <= MOST_FILES
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
