"""`python -m forge` is the command `forge`."""

from __future__ import annotations

from forge.cli import main

if __name__ == "__main__":
    main()
