"""Calls that nobody would write, made by chance from a seed: every one must end in a result and touch nothing else."""
