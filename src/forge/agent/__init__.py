"""The loop between a model and its tools, and what it remembers: sessions, summaries, token estimates."""
