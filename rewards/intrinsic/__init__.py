"""Intrinsic rewards: ``memory`` has the modes of MEM_IR, ``encoder`` turns texts into vectors."""
