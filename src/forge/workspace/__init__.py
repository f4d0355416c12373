"""The door to files: everything a built-in tool reads or writes passes through here."""
