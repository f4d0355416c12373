"""The door to programs: everything that runs outside this process is started here."""
