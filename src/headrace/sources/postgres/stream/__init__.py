"""stream: a slot's stream as whole frames, and its feedback.

slot_stream           check the slot, start it, read frames, say what is durable
transactions          which transactions a read of the stream holds
running_transactions  those that come while they run
synchronous           synchronous standbys, and why we are never one
"""
