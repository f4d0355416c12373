"""Loads `forge.yaml` and merges it with the settings of the user and the organisation."""

from __future__ import annotations

import os
from collections.abc import Mapping

from forge.project.config.declaration import NAME, Configuration, keys_of_layer, variables_set
from forge.project.config.reader import ConfigReader, config_error
from forge.project.config.section import Schema
from forge.project.config_layers import ORGANISATION, Layer, check_own, file_exists, user_file


def load_configuration(
    config: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    *,
    resolve: bool = True,
    environment: Mapping[str, str] = os.environ,
    organisation: str = "",
    text: str | None = None,
) -> Configuration:
    """Returns the effective configuration: a file that a person named, under the user's and the organisation's.

    With no file but a workspace, its `forge.yaml`, if it is trusted. Without `resolve`, variables are not looked up:
    `${NAME}` stays as it is. Servers, documents and webhooks that lack a variable are left out, and noted under
    `unset`. `text`: read this instead of the file, to see what a change of it would mean. Raises `ToolError` of kind
    `config_error`.
    """
    layers = {
        layer.kind: layer
        for layer in (
            _organisation_layer(organisation or ORGANISATION),
            _user_layer(environment),
            _project_layer(config, workspace) if text is None else _layer("project", str(config), text),
        )
        if layer is not None
    }
    values = environment if resolve else None
    project = layers.get("project")
    if not variables_set(environment) and layers.keys() <= {"project"}:
        return _read_layer(project, values).replace(layers=(project,)) if project else Configuration()
    from forge.project.config.merging import merge  # most have one layer at most

    if project is not None:
        _reader(project).check(project.document)
    merged = merge(layers, environment)
    name = project.name if project else next((layer.name for layer in layers.values()), "the environment")
    reader = ConfigReader(name, values, merged.files, {layer.name: layer.text for layer in layers.values()})
    rules = project.document.get("permissions", {}) if project else {}
    made: Configuration = reader.read_document({**merged.document, "permissions": rules})
    return made.replace(
        layers=tuple(layers.values()),
        document=merged.document,
        origins=merged.origins,
        files=merged.files,
        notes=merged.notes,
    )


def read_configuration(text: str, name: str, schema: Schema | None = None) -> Configuration:
    """Returns the configuration of one text: no other layer is read, no variable is resolved. Raises `ToolError`."""
    return _read_layer(_layer("project", name, text), None, schema)


def _layer(kind: str, name: str, text: str) -> Layer:
    from forge.project.read_yaml import parse_yaml  # only where there is a file

    document = parse_yaml(text, name)
    return Layer(kind, name, {} if document is None else document, text)


def _read_layer(layer: Layer, environment: Mapping[str, str] | None, schema: Schema | None = None) -> Configuration:
    made: Configuration = _reader(layer, environment, schema).read_document(layer.document)
    return made.replace(document=layer.document)


def _reader(layer: Layer, environment: Mapping[str, str] | None = None, schema: Schema | None = None) -> ConfigReader:
    return ConfigReader(layer.name, environment, texts={layer.name: layer.text}, schema=schema)


def _organisation_layer(path: str) -> Layer | None:
    """Reads the organisation's file. One that cannot be read is an error: its rules are unknown."""
    return _read_file("organisation", path) if file_exists(path, surely=True) else None


def _user_layer(environment: Mapping[str, str]) -> Layer | None:
    """Reads the user's own file. One that cannot be read is an error, too."""
    path = user_file(environment)
    if path is None or not file_exists(path, surely=True):
        return None
    check_own(path)
    return _read_file("user", str(path))


def _project_layer(config: str | None, workspace: str | os.PathLike[str] | None) -> Layer | None:
    """Reads the project's file: the named one, or the trusted one of the workspace."""
    if config is None and workspace is None:
        return None
    from forge.project.read_yaml import read_text  # only where there is a file
    from forge.project.trust import FoundConfig, find_accepted_config, read_accepted_text

    found = find_accepted_config(workspace) if config is None and workspace is not None else config
    if found is None:
        return None
    return _layer(
        "project", str(found), read_accepted_text(found) if isinstance(found, FoundConfig) else read_text(found)
    )


def _read_file(kind: str, path: str) -> Layer:
    """Reads a file that may have only some keys. It is checked by itself, so that its mistakes are its own."""
    from forge.project.read_yaml import read_text

    layer = _layer(kind, path, read_text(path))
    _reader(layer).check(layer.document)
    known = keys_of_layer(kind)
    if wrong := [key for key in layer.document if key not in known]:
        problem = f"the {kind}'s file cannot set this; set it in a project's {NAME}"
        raise config_error(path, wrong[0], problem, known=known, text=layer.text)
    return layer
