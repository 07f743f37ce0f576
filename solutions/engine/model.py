"""The Llama model: weights on the GPU, and a pass over tokens as a sequence of kernel launches.

`forward` computes all positions of one prompt. `prefill` and `decode`, for one sequence or a batch, keep keys and
values in a cache, so that a further token costs the work of one token. The cache owns what is kept between calls.
"""

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given import graphs, ops
from given.config import LlamaConfig
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

from .linear import linear
from .rope import rope_tables
from .step_buffers import Activations, Buffers, Integers
from .weights import load_model_weights

if TYPE_CHECKING:
    from .kv_cache import KVCache
    from .paged_kv_cache import PagedKVCache


class LlamaModel:
    """A Llama model of one folder (config.json and safetensors), all weights on the GPU."""

    def __init__(self, model_dir: str) -> None:
        """Load the weights; ConfigError and SafetensorsError, which name the file that is not usable, pass through."""
        # s08.2: upload each weight once, a tied head not twice
        self.config = LlamaConfig.from_folder(model_dir)
        weights = load_model_weights(model_dir)
        uploaded = {id(array): gpuarray.to_gpu(array) for array in weights.values()}
        self.weights = {name: uploaded[id(array)] for name, array in weights.items()}
        self.layers = [LayerWeights.of(self.weights, layer) for layer in range(self.config.num_layers)]
        self.cos, self.sin = map(gpuarray.to_gpu, rope_tables(self.config, self.config.max_position_embeddings))
        self.scale = self.config.head_dim**-0.5
        self.buffers: Buffers | None = None
        self.integers = Integers()
        self.stream: cuda.Stream | None = None
        self.graphs: graphs.Graphs | None = None

    def forward(
        self, ids: Sequence[int] | np.ndarray, last_only: bool = False, hidden_states: bool = False
    ) -> np.ndarray | tuple[np.ndarray, list[np.ndarray]]:
        """Logits [tokens, vocab_size] float32 of a prompt; [1, vocab_size], of its last token, with last_only.

        With hidden_states returns (logits, states): num_layers + 1 arrays [tokens, hidden_size] bf16, the embedding's
        output and then the residual stream after each block, before the final norm.
        Raises ValueError for an empty prompt, one longer than max_position_embeddings, or an unknown id.
        """
        # s08.2: embedding, the blocks, the final norm, the head
        prompt = self._checked(ids)
        tokens = len(prompt)
        b = self._prepare(tokens, 1, 2 * tokens)
        device_ids, positions = self.integers.send(prompt, np.arange(tokens, dtype=np.int32), stream=self.stream)
        states: list[np.ndarray] = []

        def attend(layer: int) -> None:
            ops.attention(b.attended, b.q, b.k, b.v, self.scale, self.stream)

        self._run(b, device_ids, positions, attend, states if hidden_states else None)
        rows = slice(-1, None) if last_only else slice(None)
        hidden, normed = b.hidden[rows], b.normed[rows]
        logits = gpuarray.empty((hidden.shape[0], self.config.vocab_size), np.float32)
        self._head(logits, hidden, normed)
        return (logits.get(), states) if hidden_states else logits.get()

    def prefill(
        self, ids: Sequence[int] | np.ndarray, cache: "KVCache | PagedKVCache", sequence: int = 0
    ) -> np.ndarray:
        """Begin a sequence of the cache anew with a prompt: logits [vocab_size] float32 of its last token.

        What the sequence held is forgotten. Raises ValueError for an empty prompt, an unknown id or sequence,
        RequestTooLong and, with a paged cache, OutOfBlocks; then the cache is as it was.
        """
        # s09.4: as forward, but keeping keys and values, and with one row of logits
        return self._prefill([ids], cache, [sequence], packed=False).get()[0]

    def decode(self, token: int, cache: "KVCache | PagedKVCache", sequence: int = 0) -> np.ndarray:
        """Append one token to a sequence that `prefill` began: logits [vocab_size] float32 of this token.

        Raises ValueError for an unknown token, a sequence that is unknown or empty, RequestTooLong and, with a paged
        cache, OutOfBlocks; then the cache is as it was.
        """
        # s09.4: a batch of one
        return self.launch_decode([token], cache, [sequence]).get()[0]

    def prefill_batch(
        self,
        prompts: Sequence[Sequence[int] | np.ndarray],
        cache: "KVCache | PagedKVCache",
        sequences: Sequence[int] | None = None,
    ) -> np.ndarray:
        """As `prefill` for several prompts in one pass, packed one after the other: logits [B, vocab_size] float32.

        sequences: distinct ones, one per prompt; 0 … B − 1 when None. Errors are those of prefill, also for another
        number of sequences than prompts; then no sequence of the cache has changed.
        """
        # s12.2: pack them, and let attention_varlen keep them apart
        return self.launch_prefill(prompts, cache, range(len(prompts)) if sequences is None else sequences).get()

    def decode_batch(
        self,
        ids: Sequence[int] | np.ndarray,
        cache: "KVCache | PagedKVCache",
        sequences: Sequence[int] | None = None,
    ) -> np.ndarray:
        """As `decode` with a token for each of several sequences in one pass: logits [B, vocab_size] float32.

        sequences: distinct ones, one per token; 0 … B − 1 when None. Errors are those of decode, also for another
        number of sequences than tokens; then no sequence of the cache has changed.
        """
        # s12.2: one row per sequence
        return self.launch_decode(ids, cache, range(len(ids)) if sequences is None else sequences).get()

    def reserve(self, max_num_tokens: int, max_num_seqs: int) -> None:
        """Make room for passes over so many tokens and sequences, so that none of these allocates."""
        if self.graphs is not None:
            max_num_seqs = _padded(max_num_seqs)
        self._prepare(max_num_tokens, max_num_seqs, 3 * max_num_tokens + 2 * max_num_seqs + 1)

    def use_graphs(self) -> None:
        """Record the launches of decode steps from now on, and replay them: at small batches a step is otherwise bound
        by the time that the host needs for its launches."""
        self.stream = cuda.Stream()
        self.graphs = graphs.Graphs(self.stream)

    def launch_prefill(
        self,
        prompts: Sequence[Sequence[int] | np.ndarray],
        cache: "KVCache | PagedKVCache",
        sequences: Sequence[int],
    ) -> GPUArray:
        """prefill_batch without waiting: the logits are on the GPU, valid until the next prefill is launched."""
        return self._prefill(prompts, cache, sequences, packed=True)

    def launch_decode(
        self, ids: Sequence[int] | np.ndarray, cache: "KVCache | PagedKVCache", sequences: Sequence[int]
    ) -> GPUArray:
        """decode_batch without waiting: the logits are on the GPU, valid until the next decode is launched."""
        tokens = self._checked(ids)
        sequences = _checked_sequences(sequences, len(tokens))
        starts = np.array([cache.length(sequence) for sequence in sequences])
        if not starts.all():
            raise ValueError(f"sequence {sequences[starts.argmin()]} holds no token yet: prefill it first")
        size, tables = len(tokens), cache.tables(sequences)
        rows = size if self.graphs is None else _padded(size)
        # Room for the integers of the largest batch at once: a batch that grows shall not allocate at each step.
        largest = max(rows, self.buffers.max_num_seqs if self.buffers else 0)
        b = self._prepare(rows, rows, (4 + tables[0].size) * largest)
        slots = cache.extend(dict.fromkeys(sequences, 1))
        tables = cache.tables(sequences)
        if rows > size:  # rows that no context is read for and nothing is written from
            tokens, starts, tables = (_with_rows(array, rows, 0) for array in (tokens, starts, tables))
            slots = _with_rows(slots, rows, -1)
        context_lens = np.where(np.arange(rows) < size, starts + 1, 0)
        device = self.integers.send(tokens, starts, slots, context_lens, tables, stream=self.stream)
        if self.graphs is None:
            self._decode(b, cache, *device)
        else:
            self.graphs.run((id(cache), rows), lambda: self._decode(b, cache, *device))
        return b.decode_logits[:size] if rows > size else b.decode_logits

    def _decode(
        self,
        b: Activations,
        cache: "KVCache | PagedKVCache",
        ids: GPUArray,
        positions: GPUArray,
        slots: GPUArray,
        context_lens: GPUArray,
        tables: GPUArray,
    ) -> None:
        """All launches of a decode step."""

        def attend(layer: int) -> None:
            ops.write_kv(cache.key_caches[layer], cache.value_caches[layer], b.k, b.v, slots, self.stream)
            cache.attend(layer, b.attended, b.q, tables, context_lens, self.scale, self.stream)

        self._run(b, ids, positions, attend)
        self._head(b.decode_logits, b.hidden, b.normed)

    def _prefill(
        self,
        prompts: Sequence[Sequence[int] | np.ndarray],
        cache: "KVCache | PagedKVCache",
        sequences: Sequence[int],
        packed: bool,
    ) -> GPUArray:
        """Launch a prefill, by attention_varlen when packed, else (one prompt) by attention: logits on the GPU."""
        checked = [self._checked(prompt) for prompt in prompts]
        if not checked:
            raise ValueError("the batch is empty: give at least one prompt")
        sequences = _checked_sequences(sequences, len(checked))
        counts = [len(prompt) for prompt in checked]
        tokens, size = sum(counts), len(checked)
        b = self._prepare(tokens, size, 3 * tokens + 2 * size + 1)
        slots = cache.restart(dict(zip(sequences, counts, strict=True)))
        ends = np.cumsum(counts)
        device_ids, positions, device_slots, cu_seqlens, last_rows = self.integers.send(
            np.concatenate(checked),
            np.concatenate([np.arange(count) for count in counts]),
            slots,
            np.concatenate([[0], ends]),
            ends - 1,
            stream=self.stream,
        )

        def attend(layer: int) -> None:
            ops.write_kv(cache.key_caches[layer], cache.value_caches[layer], b.k, b.v, device_slots, self.stream)
            if packed:
                ops.attention_varlen(b.attended, b.q, b.k, b.v, cu_seqlens, cu_seqlens, self.scale, self.stream)
            else:
                ops.attention(b.attended, b.q, b.k, b.v, self.scale, self.stream)

        self._run(b, device_ids, positions, attend)
        last = self._prepare(size, size, 0)
        ops.embedding(last.branch, b.hidden, last_rows, self.stream)  # a gather of rows, whatever the rows mean
        self._head(last.prefill_logits, last.branch, last.normed)
        return last.prefill_logits

    def _checked(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The ids as an array; raises ValueError for what is no list of ids, or too long."""
        config = self.config
        ids = np.asarray(ids)
        if ids.ndim != 1 or not 1 <= len(ids) <= config.max_position_embeddings:
            raise ValueError(f"wanted a list of 1 to {config.max_position_embeddings} ids, not shape {ids.shape}")
        if not np.issubdtype(ids.dtype, np.integer) or ids.min() < 0 or ids.max() >= config.vocab_size:
            raise ValueError(f"ids must be integers from 0 to {config.vocab_size - 1}")
        return ids

    def _reserve(self, tokens: int, sequences: int) -> Buffers:
        """Buffers for at least so many tokens and sequences."""
        have = self.buffers
        if have is None or tokens > have.max_num_tokens or sequences > have.max_num_seqs:
            if have is not None:
                tokens, sequences = max(tokens, have.max_num_tokens), max(sequences, have.max_num_seqs)
            self._forget_graphs()
            self.buffers = have = None  # the old ones go before the new ones come
            self.buffers = have = Buffers(self.config, max(tokens, sequences), sequences)
        return have

    def _prepare(self, tokens: int, sequences: int, integers: int) -> Activations:
        """Room for a pass, and what it reads and writes."""
        buffers = self._reserve(tokens, sequences)
        if integers > self.integers.size:
            self._forget_graphs()
            self.integers.reserve(integers)
        return buffers.rows(tokens)

    def _forget_graphs(self) -> None:
        """Recorded launches hold addresses that are about to change."""
        if self.graphs is not None:
            self.graphs.clear()

    def _run(
        self,
        b: Activations,
        ids: GPUArray,
        positions: GPUArray,
        attend: Callable[[int], None],
        states: list[np.ndarray] | None = None,
    ) -> None:
        """Embedding and all blocks; `attend(layer)` launches b.attended = attention of b.q, and keeps what it will.

        Copies of the hidden states are appended to `states`, if that is given.
        """
        ops.embedding(b.hidden, self.weights["model.embed_tokens.weight"], ids, self.stream)
        if states is not None:
            states.append(b.hidden.get())
        for layer, weights in enumerate(self.layers):
            self._attention(weights, b, positions, layer, attend)
            self._feed_forward(weights, b)
            if states is not None:
                states.append(b.hidden.get())

    def _attention(
        self, w: "LayerWeights", b: Activations, positions: GPUArray, layer: int, attend: Callable[[int], None]
    ) -> None:
        """hidden += output projection of attention over the normalised hidden states."""
        ops.rmsnorm(b.normed, b.hidden, w.attention_norm, self.config.rms_norm_eps, self.stream)
        linear(b.q_rows, b.normed, w.q, self.stream)
        linear(b.k_rows, b.normed, w.k, self.stream)
        linear(b.v_rows, b.normed, w.v, self.stream)
        ops.rope(b.q, b.k, self.cos, self.sin, positions, self.stream)
        attend(layer)
        linear(b.branch, b.attended_rows, w.o, self.stream)
        ops.residual_add(b.hidden, b.branch, self.stream)

    def _feed_forward(self, w: "LayerWeights", b: Activations) -> None:
        """hidden += SwiGLU of the normalised hidden states."""
        ops.rmsnorm(b.normed, b.hidden, w.feed_forward_norm, self.config.rms_norm_eps, self.stream)
        linear(b.gate, b.normed, w.gate, self.stream)
        linear(b.up, b.normed, w.up, self.stream)
        ops.silu_mul(b.gated, b.gate, b.up, self.stream)
        linear(b.branch, b.gated, w.down, self.stream)
        ops.residual_add(b.hidden, b.branch, self.stream)

    def _head(self, logits: GPUArray, hidden: GPUArray, normed: GPUArray) -> None:
        """Logits [rows, vocab_size] float32 of these rows of the residual stream, and of no others."""
        ops.rmsnorm(normed, hidden, self.weights["model.norm.weight"], self.config.rms_norm_eps, self.stream)
        linear(logits, normed, self.weights["lm_head.weight"], self.stream)


class LayerWeights(NamedTuple):
    """The weights of one block. Looked up once: a name for each launch would cost more than the launch."""

    attention_norm: GPUArray
    q: GPUArray
    k: GPUArray
    v: GPUArray
    o: GPUArray
    feed_forward_norm: GPUArray
    gate: GPUArray
    up: GPUArray
    down: GPUArray

    @classmethod
    def of(cls, weights: dict[str, GPUArray], layer: int) -> "LayerWeights":
        names = [
            "input_layernorm",
            *(f"self_attn.{name}_proj" for name in "qkvo"),
            "post_attention_layernorm",
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        ]
        return cls(*(weights[f"model.layers.{layer}.{name}.weight"] for name in names))


def _padded(rows: int) -> int:
    """The number of rows of a recorded step: few different ones, since each costs a recording and memory."""
    step = 1 if rows <= 2 else 4 if rows <= 8 else 8 if rows <= 64 else 16
    return -(-rows // step) * step


def _with_rows(array: np.ndarray, rows: int, value: int) -> np.ndarray:
    """The array with further rows of this value."""
    return np.concatenate([array, np.full((rows - len(array), *array.shape[1:]), value, array.dtype)])


def _checked_sequences(sequences: Sequence[int], count: int) -> list[int]:
    """The sequences as a list; raises ValueError unless there are `count` distinct whole numbers."""
    try:
        sequences = [operator.index(sequence) for sequence in sequences]
    except TypeError:
        raise ValueError(f"sequences are whole numbers, not {sequences!r}") from None
    if len(sequences) != count:
        raise ValueError(f"{len(sequences)} sequences were given for {count} prompts or tokens: one for each")
    if len(set(sequences)) != count:
        raise ValueError(f"the sequences must be distinct, not {sequences}")
    return sequences
