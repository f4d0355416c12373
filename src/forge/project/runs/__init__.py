"""Runs a project's agent without a person: schedules, durable runs and their workers."""
