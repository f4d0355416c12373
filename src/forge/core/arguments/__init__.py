"""Arguments of a call: read what a model sent, validate it, repair it, explain what is wrong; and their schemas."""
