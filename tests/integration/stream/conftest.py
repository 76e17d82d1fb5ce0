"""Receivers that are ready at once."""

from __future__ import annotations

from tests.nursery import nursery

__all__ = ["nursery"]
