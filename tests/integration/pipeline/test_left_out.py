"""Columns that the source does not send are told of: by a run, and by its status."""

from __future__ import annotations

import pytest

from headrace.cli import main as cli
from headrace.core.records import to_record
from headrace.lake.format.status import SourceStatus
from headrace.status.picture import pictures
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server


def test_generated_columns_are_named_by_run_and_status(
    mirrors: Mirrors, capsys: pytest.CaptureFixture[str]
) -> None:
    mirrors.database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (2 * id) STORED)", user="app"
    )
    mirrors.once()
    [source] = pictures(str(mirrors.path))
    assert list(source.tables["public.t"].columns_left_out) == ["twice"]
    assert SourceStatus.of(to_record(source.status)) == source.status
    assert cli.main(["status", "--lake", str(mirrors.path)]) == 0
    said = "generated columns that are not in the lake: public.t (twice)"
    assert said in capsys.readouterr().out
    url = mirrors.database.url(user="app")
    assert cli.main(["run", url, "--lake", str(mirrors.path), "--tables", "public.*", "--once"]) == 0
    assert said in capsys.readouterr().err
