"""Other people's test suites, run against Forge: `make scores` writes docs/scores.md."""
