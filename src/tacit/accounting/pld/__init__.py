"""Engines that turn sums of privacy losses into two-sided bounds on delta."""
