"""Runs code: on threads, under deadlines, in the background, and until its session ends."""
