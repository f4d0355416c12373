"""What a person sees and types: colours, tables, diffs, questions, keys."""
