"""Code that more than one source needs, and that knows none of them.

    refusals     what servers refuse in logins and statements: conditions that code reacts to
    patterns     how a person names tables
    findings     what the checks of several sources say in the same words
    credentials  passwords that a command prints or a file holds
    hosts        names resolved within a time limit, anew for each connection
    hosting      what clouds let nobody do by a statement, in the words of their documents
    copying      how small parts of tables are read together

Codes and hints are not shared: each stands where a source raises the error.
"""
