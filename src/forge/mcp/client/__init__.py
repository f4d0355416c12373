"""The client: MCP servers as a source of tools. `source` is the door."""
