"""snapshot: the contract of `contents`, over the room `copy`."""
