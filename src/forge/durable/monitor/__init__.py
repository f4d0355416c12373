"""Lets operators see a worker: counters, the load of its database, metrics, and the endpoints that serve them."""
