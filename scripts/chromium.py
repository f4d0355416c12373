"""Finds a Chromium for tests, pictures and benchmarks of the console."""

from __future__ import annotations

import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = f"none of {', '.join(NAMES)} is installed (on Debian: apt-get install {NAMES[0]})"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


def find_chromium() -> str | None:
    """Returns the path of the program; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)
