"""The commands of `forge`, one per file."""
