"""Runs cases against agents, and says how many passed, what they cost, and how two configurations compare."""
