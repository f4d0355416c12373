"""What an agent remembers: notes that people can read and edit, and an index that finds things in them."""
