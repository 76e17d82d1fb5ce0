"""The command line: one module a command, and nothing that a program could not call without it.

`main` parses, calls the command, and turns an error of our three families into four lines on standard
error and an exit code. Each command is a module with two functions, listed in `main.COMMANDS`:

    register(subparsers)    its name, its help, its arguments; sets `run=` as the parser's default
    run(args) -> int        does it, by calling `pipeline`, `status` or `lake`; 0 only when it is true

A command prints what it does; with `--json`, what a program would read. It holds no logic of its own:
what it does must be reachable from Python too. It never prints a password or the value of a row (G8),
except the rows that `headrace sql` was asked for.
"""
