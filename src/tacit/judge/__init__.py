"""A judge of printed brackets of epsilon in ball arithmetic, which shares no code with the accountant's engines."""

from tacit.judge.bracket import Checked, Verdict, check_bracket

__all__ = ["Checked", "Verdict", "check_bracket"]
