"""Finds the credentials of cloud services, with the vendors' own packages: the extras `vertex`, `bedrock`, `azure`."""
