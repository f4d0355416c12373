"""The console's HTTP interface: one file a page."""
