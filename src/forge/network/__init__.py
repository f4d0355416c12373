"""The door to the network: every request of a built-in tool is judged and made here."""
