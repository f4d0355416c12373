"""Runs programs: to their end, in the background, in a process of their own; and kills what is left."""
