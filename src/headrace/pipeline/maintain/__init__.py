"""A lake kept small and quick to open, between two epochs.

    maintenance   what a request to maintain does, step by step
    expiry        marks and history that need not stay

Small files are put together by a task (`headrace.pipeline.tasks.compact`); `commands.upkeep` is when a run
does it by itself.
"""
