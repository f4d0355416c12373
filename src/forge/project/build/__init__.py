"""Builds a project for production: `stages.py` lists the stages."""
