"""Intrinsic rewards: what an answer earns for being like earlier successes, or unlike earlier failures.

Memory-R+, arXiv 2504.02273, as rewards of a whole rollout (``rewards.reward``).

memory       the rule of all modes: score a batch, then remember it; windows of raw values
episodic     MEM_IR=knn, knn+: near the mean of earlier successes, far from earlier failures
text_modes   MEM_IR=entropy, lexical: unlike the texts before
encoder      texts to vectors
"""
