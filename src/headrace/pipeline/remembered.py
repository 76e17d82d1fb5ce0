"""What a lake knows of its sources: enough to go on, or to begin, with its path and the password alone.

A run writes the address without its secrets, the patterns and the names of slot and publication into the
catalog. `headrace run --lake DIR`, `headrace drop --lake DIR` and whoever else is given no URL begin here;
the password then comes from where libpq finds it (PGPASSWORD, a password file). A source that was only
registered (`headrace sql`, CREATE SOURCE) has no such record before its first run, and is begun as it was
registered.
"""

from __future__ import annotations

from headrace.core.errors import Misconfigured
from headrace.lake import catalog
from headrace.lake.marks import Marks
from headrace.lake.reader import Lake
from headrace.lake.registry import RegisteredSource, Registry
from headrace.pipeline.config import Config, LakeConfig, SourceConfig
from headrace.pipeline.mending import mend_if_nobody_lives
from headrace.pipeline.records import SourceRecord, source_of


def sources(path: str) -> dict[str, SourceRecord]:
    """The sources that a lake has records of."""
    lake = Lake(path)
    found = {}
    for name in lake.sources():
        mend_if_nobody_lives(lake.store, name)
        newest = Marks(lake.store, name).newest()
        record = source_of(catalog.load(lake.store, name, newest.epoch if newest else 0).records)
        if record is not None:
            found[name] = record
    return found


def configuration_of(path: str) -> Config:
    """The configuration of what a lake has run, as far as it is remembered, and of what is registered."""
    registered = Registry(Lake(path).store).sources()
    known = {name: _registered(source) for name, source in registered.items()}
    known |= {name: _config(record) for name, record in sources(path).items()}
    if not known:
        raise Misconfigured(
            "LAKE_WITHOUT_SOURCE",
            f'the lake at "{path}" does not know a source yet',
            hint="headrace run URL --lake DIR --tables 'public.*', or CREATE SOURCE in headrace sql",
        )
    return Config(LakeConfig(path), known)


def _registered(source: RegisteredSource) -> SourceConfig:
    return SourceConfig(
        url=source.connection, tables=source.views or ("*.*",), publication=source.publication
    )


def _config(record: SourceRecord) -> SourceConfig:
    return SourceConfig(
        url=record.address,
        tables=record.patterns,
        publication=None if record.owns_publication else record.publication,
        slot=None if record.owns_slot else record.slot,
    )
