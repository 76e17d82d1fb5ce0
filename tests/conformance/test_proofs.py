"""Proofs, the past, and secrets, on each of our sources."""

import pytest

from headrace_testing.conformance.proofs import *

pytestmark = pytest.mark.server
