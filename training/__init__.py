"""The embedded host: real megatron-core on whatever machine this is."""
