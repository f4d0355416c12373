"""The console's HTTP interface, one file per page."""
