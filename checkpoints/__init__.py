"""Weights on disk, as torch_dist and as Hugging Face folders, and the model they belong to."""
