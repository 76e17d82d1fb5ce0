"""`Json`: a record that is the source's own. It is stored, handed back, and read by nobody else."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
