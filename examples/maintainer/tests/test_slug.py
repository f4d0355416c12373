"""Slugs, as a reader sees them."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from slug import slug


class Slugs(unittest.TestCase):
    def test_words_have_hyphens_between_them(self) -> None:
        assert slug("Hello World") == "hello-world"
