"""Logs in at MCP servers with OAuth: settings, stored logins, grants, and the login of a person."""
