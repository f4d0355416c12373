"""What an agent knows how to do: skills in files, the tools and limits they bring, and guardrails."""
