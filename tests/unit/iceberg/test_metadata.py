"""Metadata files: their names tell ours from other programs', and the epoch."""

import pytest

from headrace.iceberg import metadata

PLACE = "/lake/iceberg/main/public/t/metadata/"


@pytest.mark.parametrize(
    ("name", "epoch"),
    [
        (metadata.new_name(48), 48),
        (f"headrace-{48:012d}-{'0' * 32}.metadata.json", 48),  # as earlier versions wrote it
        ("00048-6a5d5c5e-7d3c-4a1e-9e2e-3f6c1f0b8a11.metadata.json", None),
    ],
)
def test_a_name_has_the_epoch_if_we_wrote_the_file(name: str, epoch: int | None) -> None:
    assert metadata.epoch_of(PLACE + name) == epoch
