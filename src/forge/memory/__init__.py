"""The memory of an agent: notes that people can read and edit, and an index to search them."""
