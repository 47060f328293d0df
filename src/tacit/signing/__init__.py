"""Keyed signatures and seals of the files that tacit writes, and the counters that notice when an older one is back."""

from tacit.signing.keys import SigningKey, configuration_folder, latest_count, latest_place, raise_count, signing_key
from tacit.signing.signatures import Origin, Sealed, code_digest, new_id, origin_of, seal, signature_of, unseal

__all__ = [
    "Origin",
    "Sealed",
    "SigningKey",
    "code_digest",
    "configuration_folder",
    "latest_count",
    "latest_place",
    "new_id",
    "origin_of",
    "raise_count",
    "seal",
    "signature_of",
    "signing_key",
    "unseal",
]
