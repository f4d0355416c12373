"""Text that stands for text left out, and text that only sounds like it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.tools.shared.placeholders import is_placeholder, refuse_placeholders


@pytest.mark.parametrize(
    "line",
    [
        "... rest of the code unchanged ...",
        "# ... rest of the code unchanged ...",
        "    # ... rest of code ...",
        "// ... existing code ...",
        "// rest of the code unchanged",
        "  // Rest of the function remains the same",
        "/* ... rest of the file ... */",
        "<!-- rest of the page unchanged -->",
        "-- ... remaining code stays the same ...",
        "# ... (rest of the class unchanged)",
        "[rest of file unchanged]",
        "[... rest of the content remains unchanged ...]",
        "(remaining code omitted for brevity)",
        "# ... unchanged ...",
        "// … existing methods …",
        "{/* ... existing code ... */}",
        "; the rest of the config is the same",
        "# keep the rest of the file as is",
        "# ... same as before ...",
        "# ... other methods ...",
        "// ... previous implementation ...",
        "rest of the code unchanged",
        "# The rest of the code remains unchanged.",
        "    ... remaining methods remain the same ...",
        "# Existing code here",
        "// code unchanged",
    ],
)
def test_what_stands_for_text_left_out_is_refused(line):
    assert is_placeholder(line)
    with pytest.raises(ToolError, match="line 2 of the new text stands for text that was left out"):
        refuse_placeholders(f"def f():\n{line}\n", "def f():\n    return 1\n")
    refuse_placeholders(f"def f():\n{line}\n", f"def f():\n  {line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "# the rest of the code assumes that the list is sorted",
        "# rest of the arguments",
        "# existing code",
        "The rest of the file remains unchanged.",
        "    ...",
        "# ...",
        "def f(): ...",
        "def rest(self, *remaining): ...",
        "[...]",
        "print('... rest of the code unchanged ...')",
        'refuse("# ... rest of the code unchanged ...")',
        "rest = remaining[1:]",
        "# unchanged",
        "# the same as above",
        "# ... and the rest is history",
        "other: ...",
        "# Everything before the first colon is the name",
        "- The remaining methods stay the same as in version 1, see below",
        "x = [previous, ...]",
        "/* unchanged since 2019 */",
        "<rest>",
        "# other code paths end here",
    ],
)
def test_what_only_sounds_like_it_is_written(line):
    assert not is_placeholder(line)
    refuse_placeholders(f"a\n{line}\n", "")


def test_it_is_quick_on_much_text():
    much = (
        "# the rest of " + "the existing code " * 20_000 + "\n" + "other (((((" * 50_000 + "\n" + "same line\n" * 20_000
    )
    start = time.process_time()
    refuse_placeholders(much, "")
    assert time.process_time() - start < 1


@given(st.text(st.sampled_from("#/*. …rest ofthecodeunchangedsame()[]"), max_size=120))
def test_any_line_is_judged(line):
    is_placeholder(line)
