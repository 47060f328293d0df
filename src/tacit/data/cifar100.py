"""CIFAR-100 as 50 principal components of the pixels (Krizhevsky 2009; Jayaraman and Evans 2019)."""

import io
import math
from pathlib import Path

import numpy as np

from tacit.data.files import File
from tacit.data.source import array_source

_WIDTH = 50
# A centred image with pixels in [0, 1] has norm at most sqrt(3 * 32 * 32), and so has each component.
BOUND = math.sqrt(3 * 32 * 32)
_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
_CLASSES = tuple(_NAMES.split())
_FILE = File(
    "cifar100/cifar100_pca50.npz",
    "08ac0f43a479b1dbe8d54ae38a87eae5630a6672d3e813bcccfb66e266c6a7dc",
    11260589,
)


def _read(folder: Path) -> dict[str, np.ndarray]:
    content = _FILE.content(folder, dataset="cifar100_pca50")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {part: stored[part] for part in ("x_train", "y_train", "x_test", "y_test")}


SOURCE = array_source(
    "cifar100_pca50",
    _read,
    summary="pictures of 100 kinds of things, 50 principal components",
    rows=(50000, 10000),
    features=(_WIDTH,),
    classes=_CLASSES,
    bounds=(-BOUND, BOUND),
    licence="none stated (cite Krizhevsky 2009, technical report)",
    origin="CIFAR-100",
    preprocessing="pixels / 255, centred, 50 principal components of the training images, not whitened",
    split="official",
    files=(_FILE,),
    leaks=("the principal components, fitted on the training images",),
)
