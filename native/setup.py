"""Build of the extension module, with the digest of its source compiled in."""

import hashlib
import sys
from pathlib import Path

from setuptools import Extension, setup

SOURCE = Path("tacit_noise/first_tier.c")
# No contraction of a multiplication and an addition, and nothing that lets the compiler reorder floating point.
FLAGS = ["/O2", "/fp:precise"] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-fno-math-errno"]

setup(
    ext_modules=[
        Extension(
            "tacit_noise._first_tier",
            [SOURCE.as_posix()],
            define_macros=[("SOURCE_DIGEST", f'"{hashlib.sha256(SOURCE.read_bytes()).hexdigest()}"')],
            extra_compile_args=[*FLAGS, *([] if sys.platform == "win32" else ["-fno-trapping-math"])],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
