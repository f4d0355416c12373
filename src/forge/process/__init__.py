"""Runs programs: every program outside this process is started by this package."""
