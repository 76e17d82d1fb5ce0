"""`python -m headrace`, for where the `headrace` script is not on the path (Spark's own environments)."""

import sys

from headrace.cli.main import main

sys.exit(main())
