"""What makes a step of each pair of `jobs.toml`, by rank and variant."""

from __future__ import annotations

from collections.abc import Callable

import passes
import training
from training import Step, both, fed, second

MAKERS: dict[str, Callable[[int, str], Step]] = {
    "small-buckets": training.small_buckets,
    "behind-backward": training.behind_backward,
    "straggler": training.straggler,
    "one-rank-pageable": fed(second, 4096, 4096, 4),
    "all-ranks-pageable": fed(both, 4096, 4096, 4),
    "little-copied": fed(both, 2048, 128, 16),
    "compressed": training.compressed,
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
    "one-rank-twice": passes.one_rank_twice,
    "outputs-kept": passes.outputs_kept,
    "routed": passes.routed,
    "long-buckets": training.long_buckets,
    "half-gradients": training.half_gradients,
    "late-targets": passes.late_targets,
    "debug-copies": passes.debug_copies,
    "accumulated": training.accumulated,
    "long-sentences": training.long_sentences,
    "there-and-back": training.there_and_back,
    "loaded": passes.loaded,
    "gathered-back": passes.gathered_back,
    "slow-host": passes.slow_host,
}
