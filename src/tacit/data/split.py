"""Which rows are held out for testing: a public rule that looks at no value."""

import numpy as np

from tacit import check


def split(rows: int, *, test_fraction: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test rows, each ascending.

    Drawn from `seed` and the number of rows alone, so nothing about the records leaks through it; no label
    is looked at, hence no stratification.

    Args:
        rows: at least 2.
        test_fraction: in (0, 1); round(rows * test_fraction) rows are held out, at least 1, at most rows - 1.
        seed: integer in [0, 2^32).
    """
    check.count("rows", rows, minimum=2, hint="A split needs a row for training and one for testing.")
    check.probability("test_fraction", test_fraction, open_low=True, open_high=True)
    if check.count("seed", seed, minimum=0) >= 2**32:
        raise check.fail("seed", "an integer in [0, 2^32)", seed)
    held_out = min(max(round(rows * test_fraction), 1), rows - 1)
    # RandomState alone among numpy's generators promises the same stream in every later version.
    order = np.random.RandomState(seed).permutation(rows)
    return np.sort(order[held_out:]), np.sort(order[:held_out])
