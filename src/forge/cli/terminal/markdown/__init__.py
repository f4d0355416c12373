"""Renders the Markdown of a model for a terminal while it arrives."""
