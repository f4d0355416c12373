"""Runs the loop between a model and its tools, and holds its memory: sessions, summaries, token estimates."""
