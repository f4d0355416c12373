"""The version of Forge."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

DISTRIBUTION = "forge-tools"


def version() -> str:
    try:
        return installed(DISTRIBUTION)
    except PackageNotFoundError:
        return "0 (from source, not installed)"
