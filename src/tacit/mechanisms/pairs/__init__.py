"""Dominating pairs: for each mechanism, the two output laws that no neighbouring data sets exceed."""
