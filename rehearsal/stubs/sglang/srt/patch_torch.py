def monkey_patch_torch_reductions() -> None:
    """Makes CUDA tensors shareable between processes; there are none."""
