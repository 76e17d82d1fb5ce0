"""The meaning of Spark's own failures: a person must act, or the world must calm down.

Spark reports the loss of an executor, a wrong address and a missing package all by the same few
exception classes, with the reason in pages of Java stack traces. This module reads the reason and
forgets the pages: they are neither for operators nor for logs (G8), and what our own tasks raise never
comes this way (`wire` carries it as a value).

Pure but for the import of the classes.
"""

from __future__ import annotations

import importlib
import importlib.util
import re

from headrace.core.errors import HeadraceError, Misconfigured, Transient

# What a worker says when it cannot run our code at all. Spark wraps each in a task failure.
_UNFIT = re.compile(
    r"No module named '[\w.]+'"
    r"|Can't get attribute '\w+' on <module '[\w.]+'"
    r"|PYTHON_VERSION_MISMATCH|PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION"
    r'|Cannot run program "[^"]*"'
)
_REASON = re.compile(r"Job aborted due to stage failure[^\n]*|Job \d+ cancelled[^\n]*|\[[A-Z_.]{6,}\]")
_JAVA = re.compile(r"^: [\w.$]+(?:Exception|Error): ([^\n]+)$", re.M)
_LONGEST = 400


def engine_errors() -> tuple[type[Exception], ...]:
    """The exceptions by which Spark and the bridge to its JVM report failure."""
    names = [("pyspark.errors", "PySparkException"), ("py4j.protocol", "Py4JError"), ("grpc", "RpcError")]
    names.append(("pyarrow", "ArrowInvalid"))  # an answer that ended before its first row
    # OSError: a socket to a JVM or a server that is gone, or that never was.
    found: list[type[Exception]] = [EOFError, OSError]
    for module, name in names:
        # A client for Connect alone has no py4j, a classic one no grpc.
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            found.append(getattr(importlib.import_module(module), name))
    return tuple(found)


def of_start(error: Exception, *, remote: bool) -> HeadraceError:
    """Say why no session came up."""
    text = str(error)
    if "PACKAGE_NOT_INSTALLED" in text or "No module named" in text:
        return Misconfigured(
            "SPARK_MISSING",
            "a package that Spark Connect needs is not installed",
            detail=reason(error),
            hint="pip install 'pyspark[connect]'",
        )
    if remote:
        return Transient(
            "SPARK_UNREACHABLE",
            "the Spark Connect server does not answer",
            detail=reason(error),
            hint="check the address in [spark] remote or SPARK_REMOTE, and that the server runs",
        )
    return _not_started(reason(error) + _first_line(str(error)))


def of_master(master: str, error: OSError) -> HeadraceError:
    """Say that no master listens."""
    return Misconfigured(
        "SPARK_MASTER_SILENT",
        f'no Spark master answers at "{master}"',
        detail=error.strerror or str(error),
        hint="check [spark] master, and that the master runs; without it headrace starts a Spark of its own",
    )


def of_silence(last: str) -> HeadraceError:
    """Say why a JVM ended before it answered; `last` is what it said then."""
    return _not_started(last[:_LONGEST])


def _not_started(detail: str) -> HeadraceError:
    return Misconfigured(
        "SPARK_START_FAILED",
        "Spark does not start",
        detail=detail,
        hint="check [spark] master and conf; HEADRACE_SPARK_LOG=INFO shows what Spark says",
    )


def _first_line(text: str) -> str:
    """The words of Java before its stack: of the configuration, as no task of ours has run."""
    found = _JAVA.search(text)
    return "" if found is None else f": {found.group(1)[:_LONGEST]}"


def of_job(error: Exception) -> HeadraceError:
    """Say why a job of ours did not end."""
    unfit = _UNFIT.search(str(error))
    if unfit is not None:
        return Misconfigured(
            "SPARK_WORKER_UNFIT",
            "Spark's Python workers cannot run headrace",
            detail=unfit.group(0)[:_LONGEST],
            hint="install the same headrace with the same Python on every executor, "
            "and point PYSPARK_PYTHON (spark.pyspark.python) to it",
        )
    return Transient(
        "SPARK_JOB_FAILED",
        "a Spark job did not end",
        detail=reason(error),
        hint="look at the executors' logs; the epoch is repeated, nothing of it was published",
    )


def reason(error: Exception) -> str:
    """One line: the exception's kind and what Spark gives as the reason, without the Java stack."""
    found = _REASON.search(str(error))
    kind = type(error).__name__
    return f"{kind}: {found.group(0)[:_LONGEST]}" if found else kind
