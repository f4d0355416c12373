"""Tasks by the clock: when they are due, what is kept of them, and who runs them."""
