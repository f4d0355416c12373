"""Finds files: walks, glob patterns, ignore files, similar names."""
