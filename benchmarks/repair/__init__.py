"""Damaged calls of the Berkeley leaderboard through Forge and its peers: `make bench-repair` writes docs/repairs.md."""
