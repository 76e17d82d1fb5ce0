"""The command line: one module for each command; all that a command does can be called from Python, too.

`main` parses, calls the command, and turns an error of our three families into four lines on standard
error and an exit code. Each command is a module with two functions, listed in `main.COMMANDS`:

    register(subparsers)    its name, its help, its arguments; sets `run=` as the parser's default
    run(args) -> int        runs it, by calling `pipeline`, `status` or `lake`; 0 only if it did all of it

    demo                        a server, a workload, its mirror, and the proof, all on this machine
    check · run · status        examine a database; mirror it; show the state of the mirror
    serve                       the state over HTTP: metrics, health, a page
    alerts                      sends a test event to the hooks of a configuration
    explain                     the meaning of an error's code
    sql · verify                queries of a lake; the proof that it equals its source
    iceberg                     exports marks to an Iceberg catalog
    views                       statements by which other engines read a lake's tables
    tables · maintain · drop    work that a living run does when asked; without one, the command does it
    completion · version        scripts for shells; what is installed
    parser                      help by purpose, near names for what was mistyped
    source_options              the options of each kind of source, as it declares them
    progress · prompt           the lines and bars of a run; the prompt of `sql`
    overview · layout           the page in a terminal; lines and columns that fit it
    output                      standard output: a pipe, a terminal, a reader that goes away
    argv                        overwrites passwords in our own command line, before anything else

A command prints what it does for a person, or with `--json` for a program. It holds no logic of its own. It
never prints a password or the value of a row (G8), except the rows that `headrace sql` was asked for.
"""
