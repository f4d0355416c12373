"""Remembers what a session did to files, so that changes can be undone."""
