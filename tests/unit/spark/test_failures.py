"""Failures of Spark's own are coded errors, which a run tries again."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from headrace.core.errors import Transient
from headrace.spark.failures import engine_errors, of_job


def test_an_answer_of_spark_that_ends_early_is_tried_again() -> None:
    with pytest.raises(engine_errors()) as cut:
        pa.ipc.open_stream(io.BytesIO(b""))
    error = of_job(cut.value)
    assert isinstance(error, Transient)
    assert (error.code, error.detail) == ("SPARK_JOB_FAILED", "ArrowInvalid")
