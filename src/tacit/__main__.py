"""`python -m tacit`."""

import sys

from tacit.cli import main

sys.exit(main())
