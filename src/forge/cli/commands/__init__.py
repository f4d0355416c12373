"""The commands of `forge`: one a file."""
