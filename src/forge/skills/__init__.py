"""Skills: instructions in files, the tools and limits they bring, and guardrails."""
