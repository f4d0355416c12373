"""Scheduled tasks: rules that say when a task is due, a store of plans and runs, and a runner."""
