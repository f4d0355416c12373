"""Finds the credentials of cloud services where their own programs look for them; their packages are not needed."""
