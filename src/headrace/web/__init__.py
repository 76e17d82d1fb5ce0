"""Metrics, health and the page, over HTTP: for who looks at a mirror and never read our documents.

    lakes ──► `status.watch` ──► site ──► server ──► scrapers, browsers, probes
              one a lake         paths    an event loop: connections, limits, deadlines
                                          and a few threads that make answers

It reads `headrace.status` alone: small JSON records in the lake. It asks no source, takes no lock and
writes nothing; it loads neither Arrow nor delta-rs nor Spark, so `headrace serve` stays small. In a run
(`run --listen`) the same threads read the same records: a run shares no lock and no queue with them.

    settings     where it listens, which names it goes by, the token; an address that others reach needs one
    server       connections: how many, how long, how large
    http         bytes to requests, responses to bytes
    site         which path answers what, who may ask; whether a source is ready
    metrics      every metric, by name
    exposition   the two text formats of metrics
    pages        the page: documents that work without JavaScript; assets/ their style sheet and script
    curves       the last hour as SVG
    markup       HTML that no text can break

No answer holds a password, a URL with one, or a value of a row: the records have none (G8).
"""
