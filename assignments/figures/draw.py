"""Draws the handouts' figures: `python assignments/figures/draw.py [FOLDER]` writes one SVG file each."""

import sys
from pathlib import Path

from drawings import (
    caching,
    debugging,
    engine,
    formats,
    generating,
    launches,
    memory,
    online,
    packing,
    paging,
    products,
    reductions,
    rotation,
    scheduling,
    transformer,
)

FIGURES = (
    launches.grid_of_threads,
    launches.host_and_device,
    debugging.out_of_bounds,
    debugging.race_orders,
    formats.safetensors_file,
    formats.bf16_bits,
    memory.embedding_gather,
    memory.coalescing,
    reductions.reduction_tree,
    reductions.warp_shuffle,
    rotation.rope_pairs,
    rotation.rope_scaling,
    reductions.softmax_sweeps,
    products.column_major,
    products.matmul_tiles,
    transformer.gqa_heads,
    transformer.causal_mask,
    transformer.llama_forward,
    caching.recomputation,
    caching.kv_cache_growth,
    caching.slot_mapping,
    generating.sampling_pipeline,
    generating.generation_loop,
    generating.streaming_text,
    online.online_softmax,
    online.attention_tiles,
    online.score_row_memory,
    packing.static_batch,
    packing.padding_and_packing,
    packing.packed_mask,
    packing.varlen_blocks,
    scheduling.scheduler_timeline,
    scheduling.token_budget,
    scheduling.request_life,
    paging.rows_and_blocks,
    paging.block_boundary,
    paging.block_tables,
    paging.paged_walk,
    paging.tiles_and_blocks,
    engine.preemption,
    engine.step_integers,
    engine.engine_step,
)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    for draw in FIGURES:
        draw().write(folder)


if __name__ == "__main__":
    main()
