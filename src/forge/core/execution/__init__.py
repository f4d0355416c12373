"""Runs calls: through a chain of steps, on threads, under deadlines, in the background, in sessions that end."""
