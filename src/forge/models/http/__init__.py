"""Sends requests to model servers and reads their streams."""
