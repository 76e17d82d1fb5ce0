"""What a lake remembers of its sources: enough to go on with the lake's path and the password alone.

A run writes the address without its secrets, the patterns and the names of slot and publication into the
catalog. `headrace run --lake DIR`, `headrace drop --lake DIR` and whoever else is given no URL begin here;
the password then comes from where libpq finds it (PGPASSWORD, a password file).
"""

from __future__ import annotations

from headrace.core.errors import Misconfigured
from headrace.lake import catalog
from headrace.lake.marks import Marks
from headrace.lake.reader import Lake
from headrace.pipeline.config import Config, LakeConfig, SourceConfig
from headrace.pipeline.records import SourceRecord, source_of


def sources(path: str) -> dict[str, SourceRecord]:
    """The sources that a lake has records of."""
    lake = Lake(path)
    found = {}
    for name in lake.sources():
        newest = Marks(lake.store, name).newest()
        record = source_of(catalog.load(lake.store, name, newest.epoch if newest else 0).records)
        if record is not None:
            found[name] = record
    return found


def configuration_of(path: str) -> Config:
    """The configuration under which a lake was last run, as far as it is remembered."""
    known = sources(path)
    if not known:
        raise Misconfigured(
            "LAKE_WITHOUT_SOURCE",
            f'the lake at "{path}" does not know a source yet',
            hint="headrace run URL --lake DIR --tables 'public.*'",
        )
    return Config(LakeConfig(path), {name: _config(record) for name, record in known.items()})


def _config(record: SourceRecord) -> SourceConfig:
    return SourceConfig(
        url=record.address,
        tables=record.patterns,
        publication=None if record.owns_publication else record.publication,
        slot=None if record.owns_slot else record.slot,
    )
