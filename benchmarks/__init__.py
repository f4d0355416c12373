"""Speed, as ratios against the floor of the same process: `python -m benchmarks`."""
