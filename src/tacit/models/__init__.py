"""The models of the presets, one file for each family, with the initialisation that the papers' code used."""

from tacit.models.networks import MeanOfWords, Recommender, convnet, glorot, linear, mlp

__all__ = ["MeanOfWords", "Recommender", "convnet", "glorot", "linear", "mlp"]
