"""Changes files together or not at all, and recovers from a killed process."""
