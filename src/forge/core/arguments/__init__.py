"""Arguments of a call: reads, validates, repairs and explains what a model sent; and their schemas."""
