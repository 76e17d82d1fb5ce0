"""Tables that change while others go on, on each of our sources."""

import pytest

from headrace_testing.conformance.tables import *

pytestmark = pytest.mark.server
