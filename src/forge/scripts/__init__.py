"""A project's own tools: files with a header that declares their inputs, run as programs."""
