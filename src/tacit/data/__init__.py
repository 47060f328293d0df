"""Data sets with declared classes and bounds; one file for each, and readers for the user's own tables."""

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset, split
from tacit.data.files import data_folder
from tacit.data.registry import describe, download, load, made_of, names, same_records
from tacit.data.table import table

__all__ = [
    "Dataset",
    "data_folder",
    "describe",
    "download",
    "from_arrays",
    "load",
    "made_of",
    "names",
    "same_records",
    "split",
    "table",
]
