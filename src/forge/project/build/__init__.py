"""The build of a project: `stages.py` lists what is done, one file a stage."""
