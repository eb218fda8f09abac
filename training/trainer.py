"""The policy in training: forward passes, optimizer steps and weight export, on megatron-core.

SPMD: every process builds the same ``Trainer`` and makes the same calls with the same rows; each trains its
data-parallel share and all return the same numbers. Per optimizer step the caller does::

    ref = trainer.reference_log_probs(rows)        # once per rollout, only with KL_COEF > 0
    old = trainer.log_probs(later_rows)            # before the first step, of the rows of all others
    metrics = trainer.train_step(step_rows, step_old or None, step_ref)

With LORA_RANK adapters are trained in place of weights, and the policy without them is the reference.

A row without a gradient (advantage 0 and no KL term, or masked as a whole) passes forward alone: it counts in the mean
and in every statistic of the step, as in the hosts, and costs a third.

Arithmetic is fp32, or with TRAIN_DTYPE=bfloat16 Megatron's mixed precision: weights, activations and gradients of
products are bfloat16; master weights, sums of gradients, optimizer, log-probs and loss stay fp32. Log-probs are
those of the sampling distribution: logits are divided by TEMPERATURE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from mbridge.core.parallel_states import ParallelStates
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor

from ..checkpoints import megatron_cpu
from ..checkpoints.attention import DENSE, tree_seq_params
from ..checkpoints.bridge import build_bridge, build_model, to_hf
from ..checkpoints.checkpoint import load_weights, stored_name
from ..checkpoints.hf_folder import check_weights
from ..checkpoints.lora import adapters_off, add_adapters, merged_weights
from ..checkpoints.precision import train_dtype
from ..config import Config
from .loss import has_gradient, policy_loss, policy_metrics, row_weights, sft_loss, token_log_probs
from .ranks import broadcast, join
from .rows import TrainRow
from .tries import build_trie, rank_micro_batches


class Trainer:
    def __init__(self, config: Config, *, share: bool = True) -> None:
        """Build the policy of ``config.hf_ckpt``; weights from ``config.torch_dist`` if that is set.

        ``share``: encode a prefix that rows share once; the benchmark and tests compare that with rows one by one.
        """
        megatron_cpu.prepare()
        join(config.tp or 1)
        config = config.replace(train_dtype=broadcast(config.train_dtype))  # rank 0 has settled it
        dtype = train_dtype(config)
        self.config, self.share, self.lora_rank = config, share, config.lora_rank
        self.packed_tokens = config.max_tokens_per_gpu or 4096
        self.steps = 0
        """Optimizer steps taken with the training learning rate; warm-up counts these."""
        self.bridge = build_bridge(config.hf_ckpt, ParallelStates.get_parallel_state(), dtype=dtype)
        if not config.torch_dist:
            check_weights(self.bridge.hf_config, config.hf_ckpt)
        self.model = self._starting_model()
        if self.lora_rank:
            add_adapters(self.model, self.lora_rank, lambda name: config.seed_for(f"lora/{name}"))
        self.reference: Any = None
        if config.compares_with_reference:
            # Without its adapters the policy is where it started.
            self.reference = self.model if self.lora_rank else self._starting_model().eval().requires_grad_(False)
        optimizer_config = OptimizerConfig(
            optimizer="adam", lr=config.lr, weight_decay=config.weight_decay, adam_beta1=0.9,
            adam_beta2=config.adam_beta2, params_dtype=dtype, bf16=dtype is torch.bfloat16,
            clip_grad=config.clip_grad or math.inf,  # infinity still measures the gradient norm, it only never clips
            use_distributed_optimizer=False,
        )
        with megatron_cpu.device_mode():
            ddp_config = DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False)
            self.ddp = DistributedDataParallel(self.model.config, ddp_config, self.model)
            self.optimizer = get_megatron_optimizer(optimizer_config, [self.ddp])
        self.model.config.finalize_model_grads_func = finalize_model_grads

    def _starting_model(self) -> GPTModel:
        model = build_model(self.bridge)
        if self.config.torch_dist:
            load_weights(self.config.torch_dist, self.bridge, model)
        else:
            with torch.no_grad():
                self.bridge.load_weights([model], self.config.hf_ckpt)
        return model

    # --- forward passes ---------------------------------------------------------------------------------------------

    def log_probs(self, rows: Sequence[TrainRow]) -> list[list[float]]:
        """The policy's log-probability of every response token, row by row."""
        return self._all_log_probs(self.model, rows)

    def reference_log_probs(self, rows: Sequence[TrainRow]) -> list[list[float]]:
        with adapters_off(self.reference):
            return self._all_log_probs(self.reference, rows)

    @torch.no_grad()
    def _all_log_probs(self, model: GPTModel, rows: Sequence[TrainRow]) -> list[list[float]]:
        mine: dict[int, list[float]] = {}
        model.eval()
        for batch in self._micro_batches(rows, range(len(rows))):
            packed = [rows[i] for i in batch]
            log_probs, _ = self._forward(model, packed, self.config.temperature)
            parts = log_probs.split([row.response_length for row in packed])
            mine.update({i: part.tolist() for i, part in zip(batch, parts, strict=True)})
        shares: list[Any] = [None] * parallel_state.get_data_parallel_world_size()
        torch.distributed.all_gather_object(shares, mine, group=parallel_state.get_data_parallel_group())
        everything = {index: values for share in shares for index, values in share.items()}
        return [everything[index] for index in range(len(rows))]

    def _micro_batches(self, rows: Sequence[TrainRow], chosen: Sequence[int]) -> list[list[int]]:
        """This rank's micro-batches of the ``chosen`` rows, as indices into ``rows``."""
        inputs, ranks = [rows[i].inputs for i in chosen], parallel_state.get_data_parallel_world_size()
        plan = rank_micro_batches(inputs, ranks, self.packed_tokens, self.share)
        return [[chosen[i] for i in batch] for batch in plan[parallel_state.get_data_parallel_rank()]]

    def _forward(
        self, model: Any, rows: Sequence[TrainRow], temperature: float, with_entropy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the response tokens of a pack of rows, both ``[n]``, row after row.

        The pack is one sequence ``[1, t]`` of tries (``tries.py``), in which a prefix that rows share is encoded once.
        Logits are computed only where a response token is predicted, so a long prompt costs no vocabulary-sized
        memory, and once for rows that predict the same token in the same place: ``index_select`` adds up the gradients
        of those rows.
        """
        trie, device = build_trie(rows, self.share), megatron_cpu.device()
        tokens, positions, predicting, targets, places = (
            torch.tensor(numbers, dtype=torch.long, device=device)
            for numbers in (trie.tokens, trie.positions, trie.predicting, trie.targets, trie.places)
        )
        inner = getattr(model, "module", model)
        with (
            # The output layer sees the hidden states [t, 1, h] of predicting tokens only ...
            inner.output_layer.register_forward_pre_hook(lambda _, x: (x[0].index_select(0, predicting), *x[1:])),
            # ... and the rotary table [longest row, 1, 1, d] has an entry for each token of the pack.
            inner.rotary_pos_emb.register_forward_hook(lambda _, __, table: table.index_select(0, positions)),
        ):
            deepest = max(trie.positions) + 1  # tokens of the longest row
            packed = tree_seq_params(trie.end, deepest, device, DENSE if self.share else 0)
            logits = model(
                input_ids=tokens[None], position_ids=positions[None], attention_mask=None, packed_seq_params=packed)
        flat, vocabulary = logits[0].float(), self.bridge.vocab_size
        log_probs, entropy = token_log_probs(flat, targets, vocabulary, temperature, with_entropy)
        return log_probs.index_select(0, places), entropy.index_select(0, places)

    # --- optimizer steps --------------------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """Of the next step, as Megatron's scheduler has it. LR 1, LR_WARMUP_STEPS=4: 0, 0.25, 0.5, 0.75, 1, 1 ..."""
        lr, warmup = self.config.lr, self.config.lr_warmup_steps
        return lr * self.steps / warmup if self.steps < warmup else lr

    def train_step(
        self, rows: Sequence[TrainRow], old_log_probs: Sequence[Sequence[float]] | None,
        ref_log_probs: Sequence[Sequence[float]] | None = None,
    ) -> dict[str, float]:
        """One GRPO step on all rows of the step; the same rows, in the same order, on every rank.

        Args:
            old_log_probs: of each row; None while no step was taken since sampling: those of this step's own forward
                pass, bit for bit.
        """
        columns: tuple[Any, ...] = (rows, row_weights(rows, self.config.loss_agg), old_log_probs, ref_log_probs)

        def loss(log_probs: Tensor, entropy: Tensor, batch: list[int]) -> tuple[Tensor, Tensor]:
            mine, weights, old, reference = (column and [column[i] for i in batch] for column in columns)  # or None
            return policy_loss(log_probs, entropy, mine, weights, old, reference, self.config)

        learned = [has_gradient(row, self.config.kl_coef) for row in rows]
        sums, step = self._step(rows, learned, loss, self.config.temperature, self.learning_rate, with_entropy=True)
        self.steps += 1
        return policy_metrics(sums) | step

    def sft_step(self, rows: Sequence[TrainRow], lr: float | None = None) -> dict[str, float]:
        """One step of plain cross entropy on the unmasked response tokens, mean over tokens, at temperature 1.

        If no token is unmasked, weights and optimizer state stay as they are.

        Args:
            lr: None: that of the schedule, as in ``train_step``.
        """
        lr = self.learning_rate if lr is None else lr
        self.steps += 1
        rows = [row for row in rows if any(row.loss_mask)]
        if not rows:  # a step would still move weights by Adam's momentum and by weight decay
            return {"loss": 0.0, "tokens": 0.0, "grad_norm": 0.0, "lr": lr, "micro_batches": 0.0}

        def loss(log_probs: Tensor, entropy: Tensor, batch: list[int]) -> tuple[Tensor, Tensor]:
            mask = torch.tensor([float(m) for i in batch for m in rows[i].loss_mask], device=log_probs.device)
            return sft_loss(log_probs, mask)

        sums, step = self._step(rows, [True] * len(rows), loss, 1.0, lr, with_entropy=False)
        loss_sum, count, tokens = sums.tolist()
        return {"loss": loss_sum / count, "tokens": tokens} | step

    def _step(
        self, rows: Sequence[TrainRow], learned: Sequence[bool], loss: Callable[..., tuple[Tensor, Tensor]],
        temperature: float, lr: float, with_entropy: bool,
    ) -> tuple[Tensor, dict[str, float]]:
        """
        Args:
            learned: for each row whether it has a gradient.
            loss: ``(log_probs [n], entropy [n], row indices) -> (numerator, sums)``.
        """
        batches = [
            (batch, with_gradient)
            for with_gradient in (True, False)
            for batch in self._micro_batches(rows, [i for i, one in enumerate(learned) if one is with_gradient])
        ]
        # With fewer rows than ranks, an idle rank still joins the gradient reduction: it repeats a row for nothing.
        counts = 1.0 if batches else 0.0
        batches = batches or [([0], False)]

        def forward_step(remaining: Iterator[tuple[list[int], bool]], model: Any) -> tuple[Tensor, Callable]:
            batch, with_gradient = next(remaining)
            with torch.set_grad_enabled(with_gradient):
                log_probs, entropy = self._forward(model, [rows[i] for i in batch], temperature, with_entropy)

            def finish(log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                numerator, sums = (value * counts for value in loss(log_probs, entropy, batch))
                return numerator, sums[-2].to(torch.int), sums

            return log_probs, finish

        self.ddp.train()
        self.ddp.zero_grad_buffer()
        self.optimizer.zero_grad()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
            # megatron-core leaves it to the schedule to spare norms and biases from weight decay.
            group["weight_decay"] = self.config.weight_decay * group["wd_mult"]
        with megatron_cpu.device_mode():
            sums_per_batch = get_forward_backward_func()(
                forward_step_func=forward_step, data_iterator=iter(batches), model=[self.ddp],
                num_microbatches=len(batches), seq_length=self.packed_tokens, micro_batch_size=1,
            )
            _, grad_norm, _ = self.optimizer.step()
        sums = torch.stack(sums_per_batch).sum(0)
        torch.distributed.all_reduce(sums, group=parallel_state.get_data_parallel_group())
        return sums, {"grad_norm": float(grad_norm), "lr": lr, "micro_batches": float(len(batches))}

    # --- weights ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def export_hf(self) -> dict[str, Tensor]:
        """All weights under their Hugging Face names, adapters merged; copies on the CPU, on rank 0; ``{}`` elsewhere.

        Collective.
        """
        first = torch.distributed.get_rank() == 0
        with megatron_cpu.device_mode():
            pairs = self.bridge.export_weights([self.model])
            if self.lora_rank:
                dtype = self.bridge.dtype
                merged = ((stored_name(name), weight.to(dtype)) for name, weight in merged_weights(self.model))
                pairs = chain.from_iterable(to_hf(self.bridge, name, weight) for name, weight in merged)
            return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in pairs if first}
