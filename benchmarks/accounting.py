"""Cost and width of the exact accountant, as ratios to dp-accounting measured in the same run.

python benchmarks/accounting.py               the table
python benchmarks/accounting.py --sweep 2000  random settings of every mechanism: width, refusals, cost
python benchmarks/accounting.py --questions   width and cost of every question, and of calibration to it
python benchmarks/accounting.py --latency 300 random DP-SGD beside dp-accounting: cost of both, disjoint answers
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
from tacit.calibration import noise_multiplier
from tacit.errors import TacitError
from tacit.mechanisms import Compose, DiscreteGaussian, Exponential, Gaussian, Laplace, Mechanism, RandomizedResponse
from tacit.relation import Relation
from tacit.tradeoff import Advantage, Answer, Epsilon, Errors, Mu, Target, TradeOff

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


QUESTIONS: dict[str, Callable[[TradeOff], Answer]] = {
    "epsilon(1e-5)": lambda curve: curve.epsilon(1e-5),
    "delta(1)": lambda curve: curve.delta(1.0),
    "advantage": lambda curve: curve.advantage(),
    "beta(.5)": lambda curve: curve.beta(0.5),
    "beta(.01)": lambda curve: curve.beta(0.01),
    "tpr(.001)": lambda curve: curve.tpr(1e-3),
    "bayes_risk(.1)": lambda curve: curve.bayes_risk(0.1),
    "mu(1e-9)": lambda curve: curve.mu(),
    "mu(1e-5)": lambda curve: curve.mu(slack=1e-5),
    "mu(0)": lambda curve: curve.mu(slack=0.0),
}
TARGETS: tuple[Target, ...] = (Epsilon(2.0, 1e-5), Advantage(0.1), Mu(0.5), Errors(0.05, 0.8))


def questions() -> None:
    """Width, relative to the upper end, and CPU of each question about each mechanism, each asked of a new curve."""
    mechanisms = (
        Gaussian(1.1).poisson(256 / 60000) * 14062,
        Gaussian(0.5).poisson(0.2) * 300,
        Laplace(10.0).poisson(0.01) * 1000,
        Gaussian(1.1).poisson(0.01) * 1000 + Exponential(0.1),
    )
    for mechanism in mechanisms:
        print(mechanism)
        for name, ask in QUESTIONS.items():
            start = time.process_time()
            low, high = ask(Pld()(mechanism)).interval
            took = time.process_time() - start
            print(f"  {name:<15} width {(high - low) / high if high else 0.0:.1e}  {took * 1e3:6.0f} ms")
        report = Pld()(mechanism).mu_report()
        print(f"  regret at slack 1e-5: {report.regret:.4f}")
    for target in TARGETS:
        start = time.process_time()
        value = noise_multiplier(target, sample_rate=0.01, steps=1000).value
        print(f"calibration to {target}: {value:.6f}, {(time.process_time() - start) * 1e3:.0f} ms")


def latency(settings: int, seed: int) -> None:
    """Log-uniform DP-SGD: rate 1e-5 to .2, noise .3 to 30, 1 to 1e6 steps, delta 1e-12 to 1e-3, both in turns."""
    random = np.random.default_rng(seed)
    mine, theirs, disjoint = [], [], 0
    for _ in range(settings):
        rate, sigma = 10 ** random.uniform(-5, np.log10(0.2)), 10 ** random.uniform(np.log10(0.3), np.log10(30))
        steps, delta = round(10 ** random.uniform(0, 6)), 10 ** random.uniform(-12, -3)
        start = time.process_time()
        low, _ = Pld()(Gaussian(sigma).poisson(rate) * steps).epsilon(delta).interval
        mine.append(time.process_time() - start)
        start = time.process_time()
        upper = peer(sigma, rate, steps, delta)
        theirs.append(time.process_time() - start)
        # Theirs is an upper bound, so that no lower one may be above it.
        disjoint += low > upper * (1 + 1e-9) + 1e-12
    for name, times in (("ours", mine), ("dp-accounting", theirs)):
        shares = ", ".join(f"{share:.0%} {np.quantile(times, share) * 1e3:.0f} ms" for share in (0.5, 0.95, 1.0))
        print(f"{name:<14} {shares}")
    slower = np.mean(np.array(mine) > np.array(theirs))
    print(f"slower than dp-accounting: {slower:.0%}; lower bounds above its upper ones: {disjoint} of {settings}")


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
    parser.add_argument("--questions", action="store_true")
    parser.add_argument("--latency", type=int, default=0, metavar="N")
    parser.add_argument("--kind", choices=[*SWEEPS], help="one mechanism only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.sweep:
        for kind in [arguments.kind] if arguments.kind else SWEEPS:
            sweep(arguments.sweep, kind, arguments.seed)
    elif arguments.questions:
        questions()
    elif arguments.latency:
        latency(arguments.latency, arguments.seed)
    else:
        table(arguments.rounds)
