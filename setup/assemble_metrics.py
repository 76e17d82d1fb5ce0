"""Makes docs/metrics.md from the metrics as the code has them. Run by `make docs`.

`tests/meta/test_metrics_page.py` holds the page against the code.
"""

from __future__ import annotations

from pathlib import Path

from headrace.status.summary import STATES
from headrace.web.metrics import LIVING, METRICS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "metrics.md"

_HEAD = """\
# Metrics

`headrace serve --lake DIR`, or a run with `--listen`, answers `GET /metrics` with Prometheus' text, and with
OpenMetrics where `Accept` asks for it. [operate](operate.md#metrics-health-and-the-page) says how to start
it, and `examples/monitoring/` has alert rules and a Grafana dashboard. This page is made by `make docs` from
`src/headrace/web/metrics.py`; edit there.

```yaml
scrape_configs:
  - job_name: headrace
    static_configs:
      - targets: ["127.0.0.1:9464"]
    # authorization: { credentials_file: /etc/headrace/token }   # where there is a token
```

Counters are sums over all runs of a lake: a run that begins goes on from where the one before ended. Where
the lake's status file is lost they begin again from the marks that are kept, which Prometheus takes for a
reset. `headrace_process_cpu_seconds_total` begins with each run.

No label grows without bound: `lake`, `source` and `table` are what is mirrored, the others come from lists
in the code. A lake of 1,000 tables makes about 3,000 samples, and 7,000 while all of them are copied.

"""

_LIVING = """
Those with a star have samples only while a run is alive: a value from before would look as if nothing had
happened. `headrace_up` is 0 then.

The states of a source are {states}.
`silent` is a run whose process is gone, or that said nothing for 15 s, and that did not say that it ended.
"""


def page() -> str:
    lines = [_HEAD, "| metric | kind | labels | meaning |\n", "|---|---|---|---|\n"]
    for metric in METRICS:
        star = " *" if metric.name in LIVING else ""
        worn = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}`{star} | {metric.kind} | {worn} | {metric.help} |\n")
    lines.append(_LIVING.format(states=", ".join(f"`{state}`" for state in STATES)))
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
