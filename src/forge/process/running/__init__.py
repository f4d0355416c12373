"""Runs programs: to their end, in the background, in an own process; and kills what is left."""
