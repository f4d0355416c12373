"""The commands of `forge mcp` that change the servers of a project, or search for new ones."""
