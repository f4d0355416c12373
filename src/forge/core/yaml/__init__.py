"""Reads YAML and other files that may be hostile, within bounds."""
