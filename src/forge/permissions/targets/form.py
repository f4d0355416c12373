"""The form in which rules are compared with a reading of a target."""

from __future__ import annotations


class TargetForm:
    """One reading of a target. Rules decide about each; the strictest decision counts."""

    by_default = True  # whether the default applies where no rule matches; a reading that only denies look at has none
    is_repeated = False  # whether rulings on every command include it already
    command = ""  # one command of a line that has several, for people
    starter = ""  # a program that may start others, which the line does not show

    def matches(self, pattern: str, *, generous: bool) -> bool:
        """Says whether a pattern covers it. Rules that forbid or ask are generous, rules that allow take it exactly."""
        return False

    def surely_matches(self, pattern: str) -> bool:
        """Says whether a pattern surely covers it. An ask that only may cover it does not soften an earlier deny."""
        return False


class UnreadTarget(TargetForm):
    """A target that cannot be read: it could hold anything forbidden, and no pattern allows it."""

    def __init__(self, *, by_default: bool = True) -> None:
        self.by_default = by_default

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return generous
