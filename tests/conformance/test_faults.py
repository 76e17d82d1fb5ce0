"""A mirror after a failure, on each of our sources."""

import pytest

from headrace_testing.conformance.faults import *

pytestmark = pytest.mark.server
