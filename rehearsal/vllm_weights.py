"""``--worker-extension-cls mem_agent.rehearsal.vllm_weights.GlooWeights``: a vLLM worker takes weights over gloo.

vLLM has a factory of weight transfers, which this module gives one more, ``--weight-transfer-config
'{"backend": "gloo"}'``; so a host's updates go through vLLM's own endpoints, as with NCCL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_common import NCCLWeightTransferInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine, NCCLWeightTransferUpdateInfo

from ..serving.engine_server import PolicyReload, repack_output_layer
from .vime_shim import WeightGroup

BACKEND = "gloo"


class GlooWeights(PolicyReload):
    """Mixed into the worker; naming it makes the worker import this module before it asks the factory."""


@dataclass
class UpdateInfo(NCCLWeightTransferUpdateInfo):
    """One bucket of tensors, as the hosts' vLLM 0.23 describes it; over gloo they come one by one all the same."""

    packed: bool = False


class GlooTransfer(NCCLWeightTransferEngine):
    """vLLM's receiver with another way for the bytes; how weights are loaded is vLLM's."""

    update_info_cls = UpdateInfo
    group: WeightGroup

    def init_transfer_engine(self, init_info: NCCLWeightTransferInitInfo) -> None:
        assert init_info.master_port is not None
        self.group = WeightGroup(init_info.master_port, init_info.rank_offset, init_info.world_size)

    def receive_weights(self, update_info: NCCLWeightTransferUpdateInfo) -> None:
        model: Any = self.model
        for name, dtype, shape in zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True):
            weight = torch.empty(shape, dtype=getattr(torch, dtype))
            self.group.broadcast(weight)
            model.load_weights([(name, weight)])

    def finish_weight_update(self) -> None:
        super().finish_weight_update()
        repack_output_layer(self.model)


WeightTransferEngineFactory.register_engine(BACKEND, GlooTransfer)
