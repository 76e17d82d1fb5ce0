"""Changes of rows, on each of our sources."""

import pytest

from headrace_testing.conformance.rows import *

pytestmark = pytest.mark.server
