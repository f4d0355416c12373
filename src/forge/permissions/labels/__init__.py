"""Follows text from results into later calls: which words of a call came from untrusted or private text."""
