"""From a project's configuration and a person's flags to tools that can be called."""
