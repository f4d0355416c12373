"""Changes the MCP servers of a project: adds, removes and imports entries of forge.yaml."""
