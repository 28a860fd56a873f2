"""What makes a step of each pair of `jobs.toml`, by rank and variant."""

from __future__ import annotations

from collections.abc import Callable

import passes
import training
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from training import Step, all_ranks, fed, halved, second

MAKERS: dict[str, Callable[[int, str], Step]] = {
    "small-buckets": training.small_buckets,
    "behind-backward": training.behind_backward,
    "straggler": training.straggler,
    "one-rank-pageable": fed(second, 4096, 4096, 4),
    "all-ranks-pageable": fed(all_ranks, 4096, 4096, 4),
    "little-copied": fed(all_ranks, 2048, 128, 16),
    "compressed": halved(default_hooks.bf16_compress_hook, width=8192, count=6, batch=1024),
    "tensor-parallel": passes.tensor_parallel,
    "pipeline": passes.pipeline,
    "experts": passes.experts,
    "sharded": passes.sharded,
    "checkpoint": training.checkpoint,
    "halo": training.halo,
    "convolutions": training.convolutions,
    "logged": passes.logged,
    "wide-activations": passes.wide_activations,
    "uneven": training.uneven,
    "results-back": passes.results_back,
    "waiting-anyway": training.waiting_anyway,
    "tables": passes.tables,
    "one-rank-twice": passes.single_rank_twice,
    "outputs-kept": passes.outputs_kept,
    "routed": passes.routed,
    "long-buckets": training.long_buckets,
    "half-gradients": halved(default_hooks.fp16_compress_hook, width=6144, count=5, batch=4096),
    "late-targets": passes.late_targets,
    "debug-copies": passes.debug_copies,
    "accumulated": training.accumulated,
    "long-sentences": training.long_sentences,
    "there-and-back": training.there_and_back,
    "loaded": passes.loaded,
    "gathered-back": passes.gathered_back,
    "slow-host": passes.slow_host,
    "halo-in-memory": training.halo_in_memory,
    "all-at-once": training.all_at_once,
}
