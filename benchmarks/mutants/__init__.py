"""Privacy bugs of our own and wrong training loops, and what notices them: `python -m benchmarks.mutants`."""
