"""Makes slugs: the part of an address that a person can read."""


def slug(title: str) -> str:
    """Returns a title as lower-case words with hyphens between them."""
    return title.lower().replace(" ", "-")
