"""Metrics, health and the page over HTTP, for people who watch a mirror and have not read our documents.

    lakes ──► `status.watch` ──► site ──► server ──► scrapers, browsers, probes
              one a lake         paths    an event loop: connections, limits, deadlines
                                          and a few threads that make answers

It reads `headrace.status` alone: small JSON records in the lake. It calls no source, takes no lock and
writes nothing; it loads neither Arrow nor delta-rs nor Spark, so `headrace serve` stays small. In a run
(`run --listen`) the same threads read the same records, and share no lock and no queue with the run.

    settings     the address, the host names and the token; an address that others can reach needs a token
    server       connections and their limits: number, time, size
    http         bytes to requests, responses to bytes
    site         the answer of each path, who may ask, whether a source is ready
    metrics      every metric, by name
    exposition   the two text formats of metrics
    pages        the page: documents that work without JavaScript; assets/ holds their style sheet and script
    curves       the last hour as SVG
    markup       HTML with every text escaped

No answer holds a password, a URL with a password, or a value of a row: the records have none (G8).
"""
