"""Cost and width of the exact accountant, as ratios to dp-accounting measured in the same run.

python -m benchmarks.accounting               rows, every question, latency, calibration; stored in benchmarks/results,
                                              and widths and times of the stored settings before and after
python -m benchmarks.accounting --sweep 2000  random settings of every mechanism: width, refusals, cost
"""

import argparse
import collections
import json
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks import accounting_settings
from tacit.accounting.pld.accountant import Pld, curves_of
from tacit.calibration import noise_multiplier
from tacit.errors import TacitError
from tacit.mechanisms import Compose, DiscreteGaussian, Exponential, Gaussian, Laplace, Mechanism, RandomizedResponse
from tacit.relation import Relation
from tacit.serialization import write_text
from tacit.tradeoff import Advantage, Answer, Epsilon, Errors, Mu, Target, TradeOff

RESULTS = Path(__file__).parent / "results" / "accounting.json"
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
    """CPU seconds of one call, nothing known before."""
    curves_of.cache_clear()
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


def table(rounds: int) -> dict[str, Any]:
    """The rows of the goal, peers and ours in turns, and compositions that peers do not answer."""
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(rounds):
        for row in ROWS:
            times["ours"].append(cpu(lambda row=row: ours(*row)))
            times["peer"].append(cpu(lambda row=row: peer(*row)))
    mine, theirs = statistics.median(times["ours"]), statistics.median(times["peer"])
    found: dict[str, Any] = {
        "seconds": mine, "dp_accounting_seconds": theirs, "widest": max(ours(*row) for row in ROWS),
        "width_at_1e-30": ours(*ROWS[1], 1e-30), "seconds_of_1e8_steps": cpu(lambda: ours(30.0, 1e-3, 10**8)),
    }  # fmt: skip
    found["distinct_questions_per_second"] = 30 / cpu(lambda: [ours(1 + k / 100, 0.01, 1000) for k in range(30)])
    ours(*ROWS[1])
    start = time.process_time()
    ours(*ROWS[1])
    found["seconds_of_the_same_question_again"] = time.process_time() - start
    curves_of.cache_clear()
    tracemalloc.start()
    ours(*ROWS[1])
    found["peak_mib"] = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    for name, schedule in COMPOSITIONS.items():
        seconds = cpu(lambda schedule=schedule: Pld()(schedule).epsilon(1e-5))
        found[name] = {"seconds": seconds, "width": _width(Pld()(schedule).epsilon(1e-5))}
    return found


def _width(answer: Answer) -> float:
    """Width of a bracket relative to its upper end."""
    low, high = answer.interval
    return (high - low) / high if high else 0.0


def _schedule(first: float, last: float, rate: float, steps: int) -> Compose:
    sigmas = np.linspace(first, last, steps)
    return Compose.of(*((Gaussian(float(sigma)).poisson(rate), 1) for sigma in sigmas))


COMPOSITIONS: dict[str, Mechanism] = {
    "sampled Laplace": Laplace(10.0).poisson(0.01) * 1000,
    "40 noises": Compose.of(*((Gaussian(float(sigma)).poisson(0.01), 25) for sigma in np.geomspace(0.5, 4.0, 40))),
    "10,000 noises": _schedule(0.8, 1.2, 0.01, 10_000),
    "DP-SGD and an exponential step": Gaussian(1.1).poisson(0.01) * 1000 + Exponential(0.1),
}


def calibration() -> dict[str, Any]:
    """CPU of calibration to each target, and of dp-accounting's to the first."""
    import dp_accounting

    rate, steps = 0.01, 1000

    def theirs() -> object:
        return dp_accounting.calibrate_dp_mechanism(
            dp_accounting.pld.PLDAccountant,
            lambda sigma: dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma)), steps
            ),
            2.0,
            1e-5,
        )

    found: dict[str, Any] = {"dp_accounting_seconds": cpu(theirs)}
    for target in TARGETS:
        start = time.process_time()
        value = noise_multiplier(target, sample_rate=rate, steps=steps).value
        found[str(target)] = {"noise_multiplier": value, "seconds": time.process_time() - start}
    return found


QUESTIONS: dict[str, Callable[[TradeOff], Answer]] = {
    "epsilon(1e-5)": lambda curve: curve.epsilon(1e-5),
    "delta(1)": lambda curve: curve.delta(1.0),
    "advantage": lambda curve: curve.advantage(),
    "beta(.5)": lambda curve: curve.beta(0.5),
    "beta(.01)": lambda curve: curve.beta(0.01),
    "tpr(.001)": lambda curve: curve.tpr(1e-3),
    "bayes_risk(.1)": lambda curve: curve.bayes_risk(0.1),
    "attribute(.5)": lambda curve: curve.attribute_inference(0.5),
    "mu(1e-9)": lambda curve: curve.mu(),
    "mu(1e-5)": lambda curve: curve.mu(slack=1e-5),
    "mu(0)": lambda curve: curve.mu(slack=0.0),
}
TARGETS: tuple[Target, ...] = (Epsilon(2.0, 1e-5), Advantage(0.1), Mu(0.5), Errors(0.05, 0.8))


def questions() -> dict[str, Any]:
    """Width, relative to the upper end, and CPU of each question about each mechanism, each asked of a new curve."""
    mechanisms = (
        Gaussian(1.1).poisson(256 / 60000) * 14062,
        Gaussian(0.5).poisson(0.2) * 300,
        Gaussian(0.8).poisson(1e-3) * 200,
        Laplace(10.0).poisson(0.01) * 1000,
    )
    found: dict[str, Any] = {}
    for mechanism in mechanisms:
        rows: dict[str, Any] = {}
        for name, ask in QUESTIONS.items():
            curves_of.cache_clear()
            start = time.process_time()
            width = _width(ask(Pld()(mechanism)))
            rows[name] = {"width": width, "seconds": time.process_time() - start}
        found[str(mechanism)] = rows | {"regret at slack 1e-5": Pld()(mechanism).mu_report().regret}
    return found


def latency(settings: int, seed: int) -> dict[str, Any]:
    """Log-uniform DP-SGD: rate 1e-5 to .2, noise .3 to 30, 1 to 1e6 steps, delta 1e-12 to 1e-3, both in turns."""
    random = np.random.default_rng(seed)
    times: dict[str, list[float]] = {"ours": [], "dp_accounting": []}
    widths, disjoint = [], 0
    for _ in track(range(settings), description="latency", console=Console(stderr=True)):
        rate, sigma = 10 ** random.uniform(-5, np.log10(0.2)), 10 ** random.uniform(np.log10(0.3), np.log10(30))
        steps, delta = round(10 ** random.uniform(0, 6)), 10 ** random.uniform(-12, -3)
        start = time.process_time()
        low, high = Pld()(Gaussian(sigma).poisson(rate) * steps).epsilon(delta).interval
        times["ours"].append(time.process_time() - start)
        widths.append((high - low) / high if high else 0.0)
        start = time.process_time()
        upper = peer(sigma, rate, steps, delta)
        times["dp_accounting"].append(time.process_time() - start)
        # Theirs is an upper bound, so that no lower one may be above it.
        disjoint += low > upper * (1 + 1e-9) + 1e-12
    shares = {"50 %": 0.5, "95 %": 0.95, "all": 1.0}
    return {
        "settings": settings,
        "seconds": {
            name: {share: float(np.quantile(each, at)) for share, at in shares.items()} for name, each in times.items()
        },
        "widths": {share: float(np.quantile(widths, at)) for share, at in shares.items()},
        "slower": float(np.mean(np.array(times["ours"]) > np.array(times["dp_accounting"]))),
        "lower_bounds_above_its_upper_ones": int(disjoint),
    }


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
    parser.add_argument("--latency", type=int, default=300, metavar="N", help="random settings of DP-SGD")
    parser.add_argument("--kind", choices=[*SWEEPS], help="one mechanism only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.sweep:
        for kind in [arguments.kind] if arguments.kind else SWEEPS:
            sweep(arguments.sweep, kind, arguments.seed)
    else:
        results = {
            "rows": table(arguments.rounds), "questions": questions(), "calibration": calibration(),
            "latency": latency(arguments.latency, arguments.seed),
        }  # fmt: skip
        text = json.dumps(results, indent=1)
        write_text(RESULTS, text + "\n")
        print(text, *map(accounting_settings.summary, ("before", "after")), sep="\n")
