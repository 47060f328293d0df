"""tacit: differentially private machine learning whose every claim is tested."""

__version__ = "0.1.0"
