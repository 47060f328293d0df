"""A second implementation of `tacit check`, written from docs/statement.md and sharing no code with tacit.

It decides envelope, signature, digests, chain, facts and the numbers of Gaussian noise on Poisson samples or on all
records; every other number is `not checkable here`, by name. `judged` gives the word for a file, and raises ValueError
for one that is refused.
"""

import base64
import hashlib
import json
import math
import re
import unicodedata
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jsonschema import Draft202012Validator
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

WORDS = ("valid", "valid, not tight", "not checkable here", "contradicted")
VALID, LOOSE, UNKNOWN, WRONG = range(4)
TYPE, SCHEMA = "application/vnd.tacit.statement.v1+json", "tacit-statement/1"
NEAR = 1e-6
SHARES = (0, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
ROOT = Path(__file__).parents[2]
PUBLISHED = Draft202012Validator(json.loads((ROOT / "src/tacit/statement/statement.schema.json").read_text()))
BINS = 2**19  # Of a grid of losses; its numbers are then within 5e-7.
ROW = r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$"
TABLE = re.findall(ROW, (ROOT / "docs/statement.md").read_text(), re.MULTILINE)
WAYS = ("enforced", "checked", "declared", "assumed")
STANDING = {(row[0], how): word for row in TABLE for how, word in zip(WAYS, row[1:], strict=True)}
ORDER = ("proven", "conditional", "asymptotic", "bayesian", "claimed", "measured")


def table_of(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def number_of(digits):
    if not math.isfinite(float(digits)):
        raise ValueError(digits)
    return float(digits)


def read(text):
    value = json.loads(text, object_pairs_hook=table_of, parse_float=number_of, parse_constant=number_of)
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += [*each, *each.values()]
        elif isinstance(each, list):
            left += each
        elif isinstance(each, str):
            hidden = any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in each)
            if hidden or unicodedata.normalize("NFC", each) != each:
                raise ValueError("text")
    return value


def written(value):
    """Canonical JSON: keys by UTF-16 units, numbers as ECMAScript writes them, no spaces."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{written(key)}:{written(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e21:
            return str(int(value))
        mantissa, _, power = repr(value).partition("e")
        exponent = int(power or 0)
        if -7 < exponent < 0:
            return np.format_float_positional(value, trim="-")
        return f"{mantissa.removesuffix('.0')}e{exponent:+d}" if power else mantissa
    return json.dumps(value, ensure_ascii=False)


def decoded(text):
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text:
        raise ValueError("base64")
    return raw


def link(value):
    """SHA-256 of the text of one link, whole numbers written as integers."""

    def plain(each):
        if isinstance(each, dict):
            return {key: plain(item) for key, item in each.items()}
        if isinstance(each, list):
            return [plain(item) for item in each]
        return int(each) if isinstance(each, float) and each.is_integer() else each

    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


def chain_holds(ledger):
    ends = [link({name: ledger[name] for name in ("relation", "unit", "assumptions", "unsafe", "standing")})]
    for row in ledger["facts"]:
        ends.append(link([ends[-1], row]))
    for row in ledger["mechanisms"]:
        ends.append(link([ends[-1], {name: value for name, value in row.items() if name != "hash"}]))
        if row.get("hash") != ends[-1]:
            return False
    return ledger["hash"] == ends[-1]


def steps_of(ledger):
    """(noise, rate, steps) of each row; None where a row is not Gaussian noise with or without Poisson sampling."""
    twice = 2.0 if ledger["relation"] == "replace_one" else 1.0
    found = []
    for row in ledger["mechanisms"]:
        rate = row.get("sample_rate", 1.0)
        known = {"type", "noise_multiplier", "unsafe_no_noise", "sample_rate", "sampling", "steps", "note", "hash"}
        if row["type"] != "gaussian" or set(row) - known or row.get("sampling", "poisson") != "poisson":
            return None
        if (rate < 1 and twice > 1) or not row["noise_multiplier"] > 0:
            return None
        found.append((row["noise_multiplier"] / twice, rate, row.get("steps", 1)))
    return found


def gaussian_delta(mu, epsilon):
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


def masses(noise, rate, width, added):
    """Masses of a step's loss at multiples of `width`, of the same total under both worlds, and the least multiple."""
    ends = np.array([-11.0, 12.0]) * noise + np.array([0.0, 1.0])
    loss = lambda x: np.logaddexp(np.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * noise**2))  # noqa: E731
    low, high = math.floor(loss(ends[0]) / width), math.ceil(loss(ends[1]) / width)
    edges = np.arange(low, high + 1) * width
    with np.errstate(divide="ignore", invalid="ignore"):
        x = noise**2 * np.log((np.exp(edges) - 1 + rate) / rate) + 0.5
    x = np.where(np.isnan(x), -np.inf, x) / noise
    part = lambda at: np.where(at[1:] < 0, np.diff(ndtr(at)), -np.diff(ndtr(-at)))  # noqa: E731
    base, moved = part(x), part(x - 1 / noise)
    mixed = (1 - rate) * base + rate * moved
    p, q, edges = (base[::-1], mixed[::-1], -edges[::-1]) if added else (mixed, base, edges)
    upper = (p - q * np.exp(edges[:-1])) / -math.expm1(-width)
    found = np.zeros(len(edges))
    found[:-1] += p - upper
    found[1:] += upper
    return found, round(edges[0] / width)


def sampled_profile(steps, added):
    """delta(epsilon) of the composition, by a fast Fourier transform of the masses of the losses."""
    coarse = [masses(noise, rate, 1e-3, added) for noise, rate, _ in steps]
    mean = spread = widest = 0.0
    for (found, low), (_, _, count) in zip(coarse, steps, strict=True):
        at = 1e-3 * (low + np.arange(len(found)))
        mean, spread = mean + count * (found @ at), spread + count * (found @ at**2)
        widest = max(widest, -at[0], at[-1])
    reach = abs(mean) + 13 * math.sqrt(spread) + widest
    width, product, shift = 2 * reach / BINS, np.ones(BINS // 2 + 1, complex), 0
    for noise, rate, count in steps:
        found, low = masses(noise, rate, width, added)
        product *= np.fft.rfft(found, BINS) ** count
        shift += low * count
    total = np.roll(np.fft.irfft(product, BINS), shift + BINS // 2)
    at = width * (np.arange(BINS) - BINS // 2)
    return lambda epsilon: float(total[at > epsilon] @ -np.expm1(epsilon - at[at > epsilon]))


def profile(steps):
    if all(rate == 1 for _, rate, _ in steps):
        mu = math.sqrt(sum(count / noise**2 for noise, _, count in steps))
        return lambda epsilon: gaussian_delta(mu, epsilon)
    both = [sampled_profile(steps, added) for added in (False, True)]
    return lambda epsilon: max(each(epsilon) for each in both)


def above(stated, own):
    """The word for an upper bound."""
    stated = math.inf if stated == "inf" else stated
    return VALID if math.isclose(stated, own, rel_tol=NEAR) else LOOSE if stated > own else WRONG


def numbers(stated, ledger):
    steps = steps_of(ledger) if stated["accountant"] == "pld" else None
    if steps is None or not steps:
        return UNKNOWN
    filtered = any(row["note"].startswith("filter(") for row in ledger["mechanisms"])
    delta, words = profile(steps), [VALID if filtered or stated["scope"] == "fixed" else WRONG]
    first = 0.0
    for row in stated["at"]:
        wanted, low = row["delta"], row["epsilon_lower"]
        found = brentq(lambda e, wanted=wanted: delta(e) - wanted, 0, 200, xtol=1e-13) if delta(0) > wanted else 0.0
        words.append(above(row["epsilon"], found))
        if low is None:
            words.append(LOOSE if stated["standing"] == "proven" else VALID)
        else:
            words.append(above(-math.inf if low == "inf" else -low, -found))
        first = found if row is stated["at"][0] else first
    if len(stated["tradeoff"]) != len(SHARES):
        return WRONG
    for share, row in zip(SHARES, stated["tradeoff"], strict=True):
        if above(row["epsilon"], share * (first if first < 100 else 1.0)) != VALID:
            return WRONG
        words.append(above(row["delta"], delta(row["epsilon"])))
    return max(words)


def refutes(found, row):
    """Whether a measured lower bound lies above the epsilon of `row`."""
    low, high = (math.inf if each == "inf" else each for each in (found["epsilon_lower"], row["epsilon"]))
    return None not in (low, found["delta"]) and row["delta"] <= found["delta"] and low > high


def judged(content, fingerprint, model=None):
    """The word for the file `content`, which the key with this fingerprint must have signed."""
    outer = read(content.decode("utf-8"))
    if set(outer) != {"payloadType", "payload", "signatures"} or outer["payloadType"] != TYPE:
        raise ValueError("envelope")
    (signature,) = outer["signatures"]
    body = decoded(outer["payload"])
    payload = read(body.decode("utf-8"))
    key = decoded(payload["author"]["key"])
    message = b" ".join([b"DSSEv1", str(len(TYPE)).encode(), TYPE.encode(), str(len(body)).encode(), body])
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(decoded(signature["sig"]), message)
    except InvalidSignature:
        return WORDS[WRONG]
    named = hashlib.sha256(key).hexdigest()
    if {signature["keyid"], named} != {fingerprint} or written(payload).encode() != body:
        return WORDS[WRONG]
    if payload["schema"] != SCHEMA:
        return WORDS[UNKNOWN]
    if not PUBLISHED.is_valid(payload):
        raise ValueError("schema")
    ledger, stated, facts = payload["mechanism"], payload["guarantee"], payload["facts"]
    known = [{name: row[name] for name in ("id", "how", "says")} for row in ledger["facts"]]
    weakest = max((ORDER.index(STANDING[row["id"], row["how"]]) for row in facts), default=0)
    wrong = [
        facts != known,
        not chain_holds(ledger) if facts else False,
        stated["relation"] != ledger["relation"] or stated["unit"] != ledger["unit"],
        payload["digests"]["ledger"] != ledger.get("hash"),
        model is not None and hashlib.sha256(model).hexdigest() != payload["digests"]["model"],
        ORDER.index(stated["standing"]) < max(weakest, ORDER.index(ledger["standing"])),
        any(refutes(found, row) for found in payload["evidence"]["audits"] for row in stated["at"]),
    ]
    return WORDS[WRONG] if any(wrong) else WORDS[numbers(stated, ledger)]
