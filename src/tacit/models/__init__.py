"""The models of the presets, with the initialisation of the papers' code, and modules of the user's own by name."""

from tacit.models.networks import MeanOfWords, Recommender, convnet, glorot, linear, mlp

__all__ = ["MeanOfWords", "Recommender", "convnet", "glorot", "linear", "mlp"]
