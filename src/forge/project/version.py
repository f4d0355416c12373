"""The version of Forge."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from forge.core.extras import DISTRIBUTION


def version() -> str:
    try:
        return installed(DISTRIBUTION)
    except PackageNotFoundError:
        return "0 (from source, not installed)"
