"""Puts language models behind one method, `stream`."""
