"""Code with which commands run an agent or a tool: sessions, stored runs, servers."""
