"""The models of the presets, one file for each family, with the initialisation that the papers' code used."""

from tacit.models.convnet import convnet
from tacit.models.dense import linear, mlp
from tacit.models.recommender import Recommender
from tacit.models.start import glorot
from tacit.models.text import MeanOfWords

__all__ = ["MeanOfWords", "Recommender", "convnet", "glorot", "linear", "mlp"]
