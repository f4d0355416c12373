"""Ready-made listeners for the activity of an executor."""
