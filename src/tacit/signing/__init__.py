"""Keyed signatures of the files that tacit writes, and the counters that notice when an older one is put back."""

from tacit.signing.counters import latest_count, latest_place, raise_count
from tacit.signing.keys import SigningKey, configuration_folder, signing_key
from tacit.signing.signatures import Origin, code_digest, new_id, origin_of, signature_of

__all__ = [
    "Origin",
    "SigningKey",
    "code_digest",
    "configuration_folder",
    "latest_count",
    "latest_place",
    "new_id",
    "origin_of",
    "raise_count",
    "signature_of",
    "signing_key",
]
