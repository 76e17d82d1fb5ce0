"""stream: a slot's stream as whole frames, and its feedback.

slot_stream           check the slot, start it, read frames, report what is durable
hashing               hashes in the place of values that must not leave, before anything else sees them
transactions          the transactions in each read of the stream
running_transactions  transactions that are streamed while they run
synchronous           synchronous standbys, and why we are never one
"""
