"""Runs segments of stored runs on DBOS: queues, recorded steps, questions, children."""
