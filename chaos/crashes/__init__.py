"""A storm of crashes around the calls of a tool that counts its effects, here and in other systems."""
