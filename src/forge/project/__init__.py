"""Turns a project's configuration and a person's flags into an agent with tools."""
