"""Alerts: what happens to a mirror is told to a webhook or a command, at least once, one event a state.

    a run's status, once a second ─► watch ─► events ─► outbox, a file ─► delivery ─► webhook, command
        from any thread, at once     one thread a source                  one thread a hook

    hooks      where events go, and which of them: the sections `[alerts]` and `[alerts.NAME]`
    events     the step from what a hook knows and a new status to the events between them; pure
    delivery   one attempt: an HTTP POST, or a command
    watch      the threads between them, and each hook's outbox, kept over a restart: the events that it has
               not taken yet, and the states that it knows

The loop of a run only leaves its status here. A hook holds up no mark, and an error of a hook ends no run: it
is a warning in the run's status. The URL of a hook is a secret: it is in no file that is written here, in no
error and in no status.
"""
