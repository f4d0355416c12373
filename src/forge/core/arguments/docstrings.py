"""Reads the description that the model reads, from a docstring or a file, and the texts of the parameters."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from forge.core.files import read_regular

LARGEST_DESCRIPTION = 1024 * 1024  # bytes of a file


_SECTION = (  # compiled where it is needed: most docstrings have no sections
    r"(?m)^[ \t]*(?:(?:Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|Attributes):[ \t]*$"
    r"|(?:Parameters|Returns|Yields|Raises|Examples|Notes)[ \t]*\n[ \t]*-{3,}[ \t]*$"
    r"|:(?:param|type|returns?|rtype|raises?)\b)"
)


def description_of(doc: str) -> str:
    """Returns the docstring without its sections."""
    text = inspect.cleandoc(doc)
    section = _first_section(text)
    return (text[: section.start()] if section else text).strip()


def _first_section(text: str) -> re.Match[str] | None:
    lines = map(str.strip, text.split("\n"))
    if not any(line.endswith(":") or line.startswith((":", "---")) for line in lines):
        return None
    return re.search(_SECTION, text)


def documented_parameters(doc: str) -> dict[str, str]:
    """Returns the parameter texts of a Google, numpy or Sphinx docstring."""
    if not _first_section(doc):
        return {}
    from docstring_parser import DocstringStyle, ParseError, parse  # heavy: only for docstrings with sections

    if re.search(r"^\s*:param\b", doc, re.MULTILINE):
        style = DocstringStyle.REST
    else:
        style = DocstringStyle.NUMPYDOC if re.search(r"^\s*-{3,}\s*$", doc, re.MULTILINE) else DocstringStyle.GOOGLE
    try:
        parsed = parse(doc, style)
    except ParseError:  # a docstring may look like a section without being one
        return {}
    return {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}


def description_from(file: str, embedded: str | Callable[[], str], made_of: Any) -> str:
    """Returns the text of a description file with its variables filled in; without a file, the embedded text."""
    path = Path(file)
    module = sys.modules.get(getattr(made_of, "__module__", ""))
    if not path.is_absolute() and getattr(module, "__file__", None):
        path = Path(str(cast(Any, module).__file__)).parent / file
    try:
        text = read_regular(path, LARGEST_DESCRIPTION).decode().strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    text = text or (embedded() if callable(embedded) else embedded)
    here = os.getcwd()
    variables = {"workspace": os.environ.get("AGENT_WORKSPACE_ROOT") or here, "directory": here, "cwd": here}
    return re.sub(r"\$\{(workspace|directory|cwd)\}", lambda match: variables[match[1]], text)
