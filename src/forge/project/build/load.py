"""Stage 1: read what the project says, and find out which variables it needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forge.project.build.output import check_output, unusable
from forge.project.build.record import Build, Order, Problem, Refused
from forge.project.build.variables import READ_AT_ONCE, model_key, variables
from forge.project.config import Configuration, load_configuration
from forge.project.config.declaration import known_variables
from forge.project.assemble.sources import SCRIPTS as FOLDER
from forge.project.assemble.workspace import workspace_root

_NOBODY = f"{os.devnull}/nobody"  # an organisation that says nothing
_OF_A_PERSON = frozenset({"HOME", "XDG_CONFIG_HOME", *known_variables()})


def load(build: Build) -> str:
    order = build.order
    check_output(order.output)
    build.document = dict(load_configuration(order.config, resolve=False, **_alone()).document)
    for one in variables(build.document):
        if not one.optional:
            build.required.setdefault(one.name, []).append(one.place)
    build.optional = {one.name for one in variables(build.document) if one.optional} - build.required.keys()
    _check_set(build)
    build.configuration = project_alone(order.config)
    build.effective = load_configuration(order.config)
    if build.configuration.root is not None and not order.named:
        build.order = order._replace(workspace=workspace_root(None, build.configuration.root))
    _check_place(build.order)
    build.key = model_key(build.configuration.agent.model)
    return Path(order.config).name


def project_alone(config: str) -> Configuration:
    """What the project says, whoever builds it and wherever. Raises `ToolError`."""
    return load_configuration(config, **_alone())


def missing(build: Build) -> Iterator[Problem]:
    """What is required and not there: variables, and files with secrets."""
    for name, places in sorted(build.required.items()):
        if not os.environ.get(name):
            yield Problem(f"the variable {name} is not set ({', '.join(places)})", f"Set {name} before you build.")
    for path in build.configuration.secret_files:
        if not path.is_file():
            yield Problem(f"the file of a secret, {path}, is not there", "Put it there, or take it out of secrets.")


def _check_set(build: Build) -> None:
    """Without those that servers and documents need there is nothing to resolve; in production all must be there."""
    unset = {name: places for name, places in build.required.items() if not os.environ.get(name)}
    needed = {name for name, places in unset.items() if any(place.startswith(READ_AT_ONCE) for place in places)}
    if needed:
        every = list(missing(build))
        raise Refused(
            every if build.order.prod else [one for one in every if any(f" {name} " in one.text for name in needed)]
        )


def _check_place(order: Order) -> None:
    """What is built must not be part of what the next build copies."""
    if order.output.resolve().is_relative_to(order.workspace / FOLDER):
        raise unusable(order.output, f"it lies in {FOLDER}/, which is copied")


def _alone() -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_PERSON}
    return {"environment": environment, "organisation": _NOBODY}
