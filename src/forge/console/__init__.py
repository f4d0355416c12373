"""The web console for the person who is responsible for an agent: runs, changes and open questions."""
