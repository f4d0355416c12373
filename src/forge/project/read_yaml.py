"""Reads a configuration file as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.yaml import Unreadable, bounded_text, bounded_yaml, safe_loader


def read_yaml(path: str) -> Any:
    """Returns the document as plain data. Raises `ToolError` of kind `config_error`, with the line if it is known."""
    return parse_yaml(read_text(path), path)


def read_text(path: str) -> str:
    """Reads the text of a file. Raises `ToolError`."""
    try:
        return bounded_text(Path(path))
    except Unreadable as error:
        raise _config_error(error) from None


def parse_yaml(text: str, name: str) -> Any:
    """Parses the text of a file of that name as plain data. Raises `ToolError`."""
    try:
        return bounded_yaml(text, name, _load_document)
    except Unreadable as error:
        raise _config_error(error) from None


def _config_error(error: Unreadable) -> ToolError:
    message = f"{error.place}: cannot read the configuration: {error.problem}"
    return ToolError(message, ErrorKind.CONFIG, error.advice)


def _load_document(yaml: Any, text: str) -> Any:
    """Parses with the safe loader; a repeated key is refused, since the second would silently win."""

    class Loader(safe_loader()):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[Any] = set()
            for key, _ in node.value:
                if key.value in seen and isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} appears twice", key.start_mark
                    )
                seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            return super().construct_mapping(node, deep)

    return yaml.load(text, Loader=Loader)
