"""`python -m forge` is the command `forge`."""

from __future__ import annotations

import gc

gc.set_threshold(100_000)  # loading modules makes many objects that stay; to look for garbage among them takes time

from forge.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
