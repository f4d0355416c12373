"""Records which files a session read and changed, so that changes can be undone."""
