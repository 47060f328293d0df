"""Cost and width of the exact accountant, as ratios to dp-accounting measured in the same run.

python benchmarks/accounting.py               the table
python benchmarks/accounting.py --sweep 2000  random settings of every mechanism: width, refusals, cost
"""

import argparse
import collections
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.progress import track

from tacit.accounting.pld.accountant import Pld
from tacit.errors import TacitError
from tacit.mechanisms import Compose, DiscreteGaussian, Exponential, Gaussian, Laplace, Mechanism, RandomizedResponse
from tacit.relation import Relation

ROWS = [
    (1.3, 256 / 60000, 3516),
    (1.1, 256 / 60000, 14062),
    (0.7, 256 / 60000, 10547),
    (0.6, 256 / 60000, 14531),
    (0.55, 256 / 60000, 15938),
    (0.5, 256 / 60000, 23438),
    (0.56, 0.02048, 439),
    (1.0, 64 / 60000, 93750),
]
SWEEPS: dict[str, Callable[[float], Mechanism]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "randomized_response": lambda scale: RandomizedResponse(1 / scale),
    "exponential": lambda scale: Exponential(1 / scale),
    "discrete_gaussian": DiscreteGaussian,
}


def cpu(run: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def ours(sigma: float, rate: float, steps: int, delta: float = 1e-5) -> float:
    """Width of the bracket relative to its upper end."""
    answer = Pld()(Gaussian(sigma).poisson(rate) * steps).epsilon(delta)
    return (answer.upper - answer.lower) / answer.upper


def peer(sigma: float, rate: float, steps: int, delta: float = 1e-5) -> float:
    """epsilon by dp-accounting's connect-the-dots."""
    import dp_accounting

    accountant = dp_accounting.pld.PLDAccountant()
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    return accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps)).get_epsilon(delta)


def table(rounds: int) -> None:
    """The rows of the goal, peers and ours in turns."""
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(rounds):
        for row in ROWS:
            times["ours"].append(cpu(lambda row=row: ours(*row)))
            times["peer"].append(cpu(lambda row=row: peer(*row)))
    mine, theirs = statistics.median(times["ours"]), statistics.median(times["peer"])
    print(f"median CPU of a row      {mine * 1e3:.1f} ms, dp-accounting {theirs * 1e3:.0f} ms, 1/{theirs / mine:.0f}")
    print(f"widest bracket of a row  {max(ours(*row) for row in ROWS):.1e}")
    tracemalloc.start()
    ours(*ROWS[1])
    print(f"peak memory of a row     {tracemalloc.get_traced_memory()[1] / 2**20:.1f} MiB")
    tracemalloc.stop()
    for name, schedule in (
        ("10,000 distinct sigmas  ", _schedule(0.8, 1.2, 0.01, 10_000)),
        ("the same, no line covers", _schedule(2.0, 1.0, 256 / 60000, 3516)),
    ):
        seconds = cpu(lambda schedule=schedule: Pld()(schedule).epsilon(1e-5))
        low, high = Pld()(schedule).epsilon(1e-5).interval
        print(f"{name} {seconds:.2f} s, width {(high - low) / high:.1e}")
    print(f"T = 1e8                  {cpu(lambda: ours(30.0, 1e-3, 10**8)) * 1e3:.1f} ms")
    print(f"delta = 1e-15, 1e-30     width {ours(*ROWS[1], 1e-15):.1e}, {ours(*ROWS[1], 1e-30):.1e}")
    _calibration()


def _schedule(first: float, last: float, rate: float, steps: int) -> Compose:
    sigmas = np.linspace(first, last, steps)
    return Compose.of(*((Gaussian(float(sigma)).poisson(rate), 1) for sigma in sigmas))


def _calibration() -> None:
    import dp_accounting

    from tacit.calibration import noise_multiplier
    from tacit.tradeoff import Epsilon

    def theirs() -> object:
        return dp_accounting.calibrate_dp_mechanism(
            dp_accounting.pld.PLDAccountant,
            lambda sigma: dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(256 / 60000, dp_accounting.GaussianDpEvent(sigma)), 14062
            ),
            2.0,
            1e-5,
        )

    mine = cpu(lambda: noise_multiplier(Epsilon(2.0, 1e-5), sample_rate=256 / 60000, steps=14062))
    other = cpu(theirs)
    print(f"calibration              {mine * 1e3:.0f} ms, dp-accounting {other * 1e3:.0f} ms, 1/{other / mine:.0f}")


def sweep(settings: int, kind: str, seed: int) -> None:
    """Log-uniform settings over the stated ranges, sampled or not, under each relation; prints width, refusals, cost.

    Only settings whose epsilon lies in [1e-3, 500] count.
    """
    random = np.random.default_rng(seed)
    found: list[tuple[float, float, str]] = []
    refused: collections.Counter[str] = collections.Counter()
    for _ in track(range(settings), description=kind, console=Console(stderr=True)):
        rate, scale = 10 ** random.uniform(-6, 0), 10 ** random.uniform(np.log10(0.2), 3)
        steps, delta = round(10 ** random.uniform(0, 9)), 10 ** random.uniform(-30, 0)
        relation = list(Relation)[int(random.integers(3))]
        step = SWEEPS[kind](scale)
        mechanism = (step.poisson(rate) if random.integers(2) else step) * steps
        start = time.process_time()
        try:
            answer = Pld()(mechanism, relation=relation).epsilon(delta)
        except TacitError as error:
            refused[str(error).split(";")[0].split(" at epsilon")[0]] += 1
            continue
        took = time.process_time() - start
        if answer.upper >= 1e-3 and answer.lower <= 500:
            width = (answer.upper - answer.lower) / answer.upper if answer.upper < math.inf else 1.0
            found.append((width, took, f"{mechanism}, delta {delta:.2g}, {relation.value}"))
    _summary(kind, found, refused)


def _summary(kind: str, found: list[tuple[float, float, str]], refused: collections.Counter[str]) -> None:
    widths, took = np.array([width for width, _, _ in found]), np.array([seconds for _, seconds, _ in found])
    print(f"{kind}: {len(found)} settings in range")
    for limit in (1e-6, 1e-2):
        print(f"  wider than {limit:.0e}: {np.sum(widths > limit)} ({np.mean(widths > limit):.2%})")
    print("  width: " + ", ".join(f"{share:.0%} below {np.quantile(widths, share):.1e}" for share in (0.5, 0.9, 0.99)))
    print(f"  CPU: median {np.median(took) * 1e3:.0f} ms, largest {took.max():.2f} s, {np.sum(took > 1)} above 1 s")
    print(f"  refused: {sum(refused.values())}")
    for reason, count in refused.most_common():
        print(f"    {count} x {reason}")
    for width, seconds, name in sorted(found, reverse=True)[:5]:
        print(f"  widest {width:.1e} ({seconds:.2f} s): {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=int, default=0, metavar="N")
    parser.add_argument("--kind", choices=[*SWEEPS], help="one mechanism only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.sweep:
        for kind in [arguments.kind] if arguments.kind else SWEEPS:
            sweep(arguments.sweep, kind, arguments.seed)
    else:
        table(arguments.rounds)
