"""Reads the event log of a project."""
