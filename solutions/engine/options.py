"""What LLM may be asked for, checked and completed."""

from dataclasses import dataclass

from given.config import LlamaConfig

LONGEST_DEFAULT_CONTEXT = 4096
DEFAULT_BATCHED_TOKENS = 2048


@dataclass
class Options:
    """LLM's options for a model; what is None is filled in. ValueError for a value that means nothing."""

    config: LlamaConfig
    max_num_seqs: int
    max_model_len: int | None
    kv_memory_bytes: int | None
    num_blocks: int | None
    block_size: int
    max_num_batched_tokens: int | None

    def __post_init__(self) -> None:
        longest = self.config.max_position_embeddings
        if self.max_model_len is None:
            self.max_model_len = min(longest, LONGEST_DEFAULT_CONTEXT)
        _refuse_outside("max_model_len", self.max_model_len, longest)
        _refuse_outside("max_num_seqs", self.max_num_seqs)
        _refuse_outside("block_size", self.block_size)
        if self.num_blocks is None:
            self.num_blocks = self._default_num_blocks()
        elif self.kv_memory_bytes is not None:
            raise ValueError("num_blocks and kv_memory_bytes both give the cache's size: leave one of them out")
        _refuse_outside("num_blocks", self.num_blocks)
        self.max_length = min(self.max_model_len, self.num_blocks * self.block_size)
        if self.max_num_batched_tokens is None:
            self.max_num_batched_tokens = max(DEFAULT_BATCHED_TOKENS, self.max_length)
        _refuse_outside("max_num_batched_tokens", self.max_num_batched_tokens)

    @property
    def longest_prefill(self) -> int:
        """The most tokens of one step's prompts: those of the budget, or one prompt."""
        return max(self.max_length, min(self.max_num_batched_tokens, self.max_num_seqs * self.max_length))

    def _default_num_blocks(self) -> int:
        """As many as fit into kv_memory_bytes, or else max_num_seqs of the longest contexts."""
        if self.kv_memory_bytes is None:
            return self.max_num_seqs * -(-self.max_model_len // self.block_size)
        _refuse_outside("kv_memory_bytes", self.kv_memory_bytes)
        # A token has a key and a value, bf16, in each layer.
        block = self.block_size * self.config.num_layers * 2 * self.config.num_kv_heads * self.config.head_dim * 2
        if self.kv_memory_bytes < block:
            told = f"kv_memory_bytes is {self.kv_memory_bytes}"
            raise ValueError(f"{told}, but one block of this model takes {block} bytes")
        return self.kv_memory_bytes // block


def _refuse_outside(name: str, value: int, most: int | None = None) -> None:
    """ValueError for an option that is not a whole number from 1 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or (most is not None and value > most):
        limits = "from 1 on" if most is None else f"from 1 to {most}"
        raise ValueError(f"{name} must be a whole number {limits}, got {value!r}")
