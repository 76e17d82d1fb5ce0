"""The least privileges: those that docs/mysql.md asks for are those of the tests' mirrors."""

from __future__ import annotations

from headrace_testing.mysql.flavours import OF_TABLES, OF_THE_LOG
from tests.meta.tracked import ROOT


def test_mirrors_of_tests_have_the_privileges_of_the_documents_and_no_others() -> None:
    page = (ROOT / "docs" / "mysql.md").read_text(encoding="utf-8")
    asked = [line.partition(";")[0] for line in page.splitlines() if line.startswith("GRANT ")]
    assert asked == [
        f"GRANT {OF_THE_LOG} ON *.* TO headrace",
        f"GRANT {OF_TABLES} ON `shop`.* TO headrace",
    ]
