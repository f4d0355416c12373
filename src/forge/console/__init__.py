"""The web page for the person who is responsible for an agent: what ran, what it touched, what waits for them."""
