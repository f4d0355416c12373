"""Real MCP clients on `forge serve`: each lists the tools, calls one, gets an error, and cancels a call."""
