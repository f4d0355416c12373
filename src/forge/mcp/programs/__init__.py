"""Programs of MCP servers: how they are confined, started, installed and pinned."""
