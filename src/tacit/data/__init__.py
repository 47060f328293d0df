"""Data sets with declared classes and bounds; the published ones, and readers for the user's own tables."""

from tacit.data.dataset import Dataset, from_arrays, split
from tacit.data.files import data_folder
from tacit.data.published import describe, download, load, made_of, names, same_records
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
