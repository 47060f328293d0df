"""delta(epsilon) of steps whose loss has atoms: randomised response, discrete Gaussian and Laplace noise.

|M(c + iy)| does not fall where the loss has atoms, so these are summed: over the atoms of all steps together, and for
Laplace noise over the residues of its moment. Derivation: THEORY.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from flint import acb, arb, arb_poly, arb_series, ctx

from tacit.judge.sampled_gaussian import NotDecided, up_to

_MOST_ATOMS = 150_000
_MOST_TERMS = 400_000
_LOG_DROPPED = 110.0  # Atoms beyond hold less than e^-110.

Atoms = list[tuple[arb, arb]]


@dataclass(frozen=True)
class AtomLaw:
    """Losses of one step with their masses under P.

    Args:
        atoms: losses and masses.
        lattice: whether the losses are evenly spaced.
        dropped: bound on the mass left out, under P and Q.
    """

    atoms: tuple[tuple[arb, arb], ...]
    lattice: bool
    dropped: arb

    @classmethod
    def response(cls, epsilon: float) -> AtomLaw:
        """Randomised response of odds e^epsilon : 1."""
        size = arb(epsilon)
        told = 1 / (1 + (-size).exp())
        return cls(((-size, 1 - told), (size, told)), lattice=True, dropped=arb(0))

    @classmethod
    def discrete_gaussian(cls, scale: arb, shift: int) -> AtomLaw:
        """Noise of weight e^{-x^2 / (2 scale^2)} at integers, moved by `shift`: loss shift (x - shift/2) / scale^2."""
        reach = math.ceil(float(scale) * math.sqrt(2 * _LOG_DROPPED)) + 2
        if 2 * (reach + shift) > _MOST_ATOMS:
            raise NotDecided("the scale of the discrete noise is too large")
        weights = [(-arb(x * x) / (2 * scale**2)).exp() for x in range(reach + shift + 1)]
        # Beyond `reach`, which both laws keep, each weight is at most the one before times the ratio of the last two.
        ratio = weights[reach] / weights[reach - 1]
        rest = 2 * weights[reach] * ratio / (1 - ratio)
        total = 2 * sum(weights[1 : reach + 1], arb(0)) + 1 + up_to(rest)
        # x is the noise under P, whose centre is `shift`.
        places = range(-reach - shift, reach + shift + 1)
        atoms = [((2 * x + shift) * shift / (2 * scale**2), weights[abs(x)] / total) for x in places]
        return cls(tuple(atoms), lattice=True, dropped=(rest / total).upper())

    def sampled(self, rate: float, *, added: bool) -> AtomLaw:
        """The law on a Poisson sample: loss +-log(1 - q + q e^l), where Q has mass e^{-l} P; the same at rate 1."""
        if rate == 1:
            return self
        q, found, dropped = arb(rate), [], self.dropped
        for loss, mass in self.atoms:
            log_w = (1 - q + q * loss.exp()).log()
            base = mass * (-loss).exp()
            atom = (-log_w, base) if added else (log_w, base * log_w.exp())
            if atom[1] < arb(-_LOG_DROPPED).exp():
                dropped += atom[1]
            else:
                found.append(atom)
        return AtomLaw(tuple(found), lattice=len(found) == 2, dropped=dropped)

    def moment(self, s: acb) -> acb:
        """E[e^{s L}] of the atoms."""
        return sum(((loss * s).exp() * mass for loss, mass in self.atoms), acb(0))

    def composed(self, times: int) -> Atoms:
        """Atoms of `times` steps together."""
        if times == 1:
            return list(self.atoms)
        if self.lattice:
            if (len(self.atoms) - 1) * times > _MOST_ATOMS:
                raise NotDecided(f"the discrete steps have more than {_MOST_ATOMS} outcomes")
            first, gap = times * self.atoms[0][0], self.atoms[1][0] - self.atoms[0][0]
            powers = (arb_poly([mass for _, mass in self.atoms]) ** times).coeffs()
            return [(first + gap * j, mass) for j, mass in enumerate(powers)]
        return self._multinomial(times)

    def _multinomial(self, times: int) -> Atoms:
        """The same off a lattice: one atom for every multiset of outcomes."""
        if math.comb(times + len(self.atoms) - 1, times) > _MOST_ATOMS:
            raise NotDecided("the law of the loss has atoms off any lattice, and too many of them for a sum")
        found = [(times, arb(0), arb(math.factorial(times)))]
        for loss, mass in self.atoms[:-1]:
            found = [
                (left - n, total + n * loss, weight * mass**n / math.factorial(n))
                for left, total, weight in found
                for n in range(left + 1)
            ]
        loss, mass = self.atoms[-1]
        return [(total + n * loss, weight * mass**n / math.factorial(n)) for n, total, weight in found]


@dataclass(frozen=True)
class LaplaceSum:
    """Laplace steps: pairs (epsilon, times) of shift over scale and count.

    One step has E[e^{sL}] = ((1 + s) e^{s epsilon} + s e^{-(1 + s) epsilon}) / (1 + 2 s).
    """

    parts: tuple[tuple[arb, int], ...]

    @cached_property
    def count(self) -> int:
        """Number of steps."""
        return sum(times for _, times in self.parts)

    def moment(self, s: acb) -> acb:
        """E[e^{s L}] of all steps, for s beside -1/2."""
        total = acb(1)
        for size, times in self.parts:
            one = (1 + s) * (s * size).exp() + s * (-(1 + s) * size).exp()
            total *= (one / (1 + 2 * s)) ** times
        return total

    @cached_property
    def terms(self) -> list[tuple[int, arb, arb]]:
        """Of the expanded moment: power k of (1 + s), loss that is left, weight."""
        if math.prod(times + 1 for _, times in self.parts) * self.count > _MOST_TERMS:
            raise NotDecided("the sum over the residues of the Laplace steps has too many terms")
        found = []
        for ks in product(*(range(times + 1) for _, times in self.parts)):
            loss, weight = arb(0), arb(1)
            for k, (size, times) in zip(ks, self.parts, strict=True):
                loss += (2 * k - times) * size
                weight *= math.comb(times, k) * (-(times - k) * size).exp()
            found.append((sum(ks), loss, weight))
        return found

    @cached_property
    def _series(self) -> list[arb_series]:
        """For every k: (u + 1/2)^{k - 1} (u - 1/2)^{n - k - 1} / 2^n below u^n, u = s + 1/2."""
        n, half = self.count, arb(1) / 2
        ctx.cap = n
        above, below = arb_series([half, 1]), arb_series([-half, 1])
        return [above ** (k - 1) * below ** (n - k - 1) * half**n for k in range(n + 1)]

    def delta(self, epsilon: arb) -> arb:
        """E[(1 - e^{epsilon - S})_+], from the residues left of the line where it closes to the left."""
        n, found = self.count, arb(0)
        for k, loss, weight in self.terms:
            room = loss - epsilon
            if room <= 0:
                continue
            if not room > 0:
                raise NotDecided("epsilon is a sum of the losses' ends up to rounding")
            residue = (self._series[k] * arb_series([0, room]).exp())[n - 1] * (-room / 2).exp()
            poles = (arb(1) if k == n else 0) + ((-room).exp() * (-1) ** (n - 1) / arb(-1) ** n if k == 0 else 0)
            found += weight * (residue + poles)
        return found


def delta(laws: Sequence[tuple[AtomLaw, int]], laplace: LaplaceSum, epsilon: float) -> arb:
    """Enclosure of delta at epsilon, of atoms and Laplace steps together.

    Raises:
        NotDecided: there are too many outcomes, or epsilon is one of them up to rounding.
    """
    ctx.prec = 256 + 3 * laplace.count
    lists = [law.composed(times) for law, times in laws]
    dropped = sum((times * law.dropped for law, times in laws), arb(0))
    count = math.prod(len(each) for each in lists)
    if count * (len(laplace.terms) * laplace.count if laplace.parts else 1) > _MOST_TERMS:
        raise NotDecided("the steps have too many outcomes together")
    found = arb(0)
    for atoms in product(*lists):
        rest, mass = epsilon - sum((loss for loss, _ in atoms), arb(0)), math.prod((p for _, p in atoms), start=arb(1))
        if laplace.parts:
            found += mass * laplace.delta(rest)
        elif rest < 0:
            found += mass * (1 - rest.exp())
        elif not rest >= 0:
            found += mass * arb(0, abs(1 - rest.exp()).upper())
    return found + up_to(dropped)
