"""Where tools come from: MCP servers, OpenAPI documents, webhooks, scripts and other frameworks."""
