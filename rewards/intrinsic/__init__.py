"""Intrinsic rewards: what an answer earns for being like earlier successes, or unlike earlier failures.

Memory-R+, arXiv 2504.02273, as rewards of a whole rollout (``rewards.reward``). One rule holds for every mode: a batch
is scored against memory and window as they were before it; only then is it written, in an order that its contents
alone decide. So neither a reward nor the state after depends on the order of the batch.

episodic     MEM_IR=knn, knn+: near the mean of earlier successes, far from earlier failures
text_reward  MEM_IR=entropy, lexical: unlike the texts before
store        questions with the vectors of their answers
terms, window, texts, lexical, spread      the formulas, one by one
encoder, embedder                          texts to vectors, batched and cached
"""
