"""Judges and makes every network request of the built-in tools."""
