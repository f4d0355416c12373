"""The terminal: colours, tables, diffs, questions, keys."""
