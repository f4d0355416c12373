"""Makes the parts of a project from its configuration: model, tools, rules, skills, memory, channels."""
