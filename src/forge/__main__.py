"""`python -m forge` is the command `forge`."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command and end the process."""
    gc.set_threshold(100_000, 10, 10)  # loading modules makes many objects and no garbage
    from forge.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
