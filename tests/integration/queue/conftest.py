"""Receivers of the folder's mirrors are forked, instead of importing all anew."""

from __future__ import annotations

from tests.nursery import nursery

__all__ = ["nursery"]
