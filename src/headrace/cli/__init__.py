"""The command line: one module a command, and nothing that a program could not call without it.

`main` parses, calls the command, and turns an error of our three families into four lines on standard
error and an exit code. Each command is a module with two functions, listed in `main.COMMANDS`:

    register(subparsers)    its name, its help, its arguments; sets `run=` as the parser's default
    run(args) -> int        does it, by calling `pipeline`, `status` or `lake`; 0 only when it is true

    demo                        a server, a workload, its mirror, and the proof, all on this machine
    demo_scenes                 the servers and workloads of the demo, one of each kind of source
    check · run · status        before a mirror, the mirror, and how it is
    serve                       the same over HTTP: metrics, health, a page
    alerts                      tries where alerts go
    explain                     what an error's code means
    sql · verify                queries of a lake; the proof that it equals its source
    views                       the same tables as statements of other engines
    tables · maintain · drop    what a run is asked for, or what is done in its place
    completion · version        scripts for shells; what is installed
    parser                      help by purpose, near names for what was mistyped
    source_options              the options of each kind of source, as it declares them
    progress · prompt           the lines and bars of a run; the prompt of `sql`
    overview · layout           the page in a terminal; lines and columns that fit it
    output                      standard output as it is: a pipe, a terminal, a reader that goes away
    argv                        takes passwords out of our own command line, before anything else

A command prints what it does; with `--json`, what a program would read. It holds no logic of its own:
what it does must be reachable from Python too. It never prints a password or the value of a row (G8),
except the rows that `headrace sql` was asked for.
"""
