"""Reads shell lines: the commands that they could reach, which only read, and which destroy."""
