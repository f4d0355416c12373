"""Sources of tools: MCP servers, OpenAPI documents, webhooks, scripts and other frameworks."""
