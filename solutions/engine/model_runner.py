"""Runs the model over a cache: `prefill` reads a prompt, `decode` adds a token, for one slot of the cache or a batch.

Keys and values are kept in the cache, so that a further token costs the work of one token. The runner owns the memory
of a pass and its recorded launches; the weights are the model's, and what is kept between passes is the cache's.
"""

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given import graphs, ops
from pycuda.gpuarray import GPUArray

from .model import LlamaModel
from .step_buffers import Activations, FirstRows, Logits, Staging

if TYPE_CHECKING:
    from .kv_cache import KVCache
    from .paged_kv_cache import PagedKVCache

Ids = Sequence[int] | np.ndarray


class ModelRunner:
    """Prefills and decodes with one model; `model` is an attribute."""

    def __init__(self, model: LlamaModel) -> None:
        """Run `model`, in passes of any size."""
        # s09.4: the model, and the memory of its passes
        self.model = model
        self.stream: cuda.Stream | None = None
        self._graphs: graphs.Graphs | None = None
        self._activations: FirstRows[Activations] | None = None
        self._logits: FirstRows[Logits] | None = None
        self._staging = Staging()

    def prefill(self, ids: Ids, cache: "KVCache | PagedKVCache", slot: int = 0) -> np.ndarray:
        """Begin a slot of the cache again with a prompt: logits [vocab_size] float32 of its last token.

        What the slot held is forgotten. Raises ValueError for an empty prompt, an unknown id or slot, RequestTooLong
        and, with a paged cache, OutOfBlocks; then the cache is as it was.
        """
        # s09.4: as forward, but keeping keys and values, and with one row of logits
        return self._prefill([ids], cache, [slot], self._attend_alone).get()[0]

    def decode(self, token: int, cache: "KVCache | PagedKVCache", slot: int = 0) -> np.ndarray:
        """Append one token to a slot that `prefill` began: logits [vocab_size] float32 of this token.

        Raises ValueError for an unknown token, a slot that is unknown or empty, RequestTooLong and, with a paged
        cache, OutOfBlocks; then the cache is as it was.
        """
        # s09.4: a batch of one
        return self.launch_decode([token], cache, [slot]).get()[0]

    def prefill_batch(
        self, prompts: Sequence[Ids], cache: "KVCache | PagedKVCache", slots: Sequence[int] | None = None
    ) -> np.ndarray:
        """As `prefill` for several prompts in one pass, packed one after the other: logits [B, vocab_size] float32.

        slots: distinct ones, one per prompt; 0 … B − 1 when None. Errors are those of prefill, also for another
        number of slots than prompts; then no slot of the cache has changed.
        """
        # s12.2: pack them, and let attention_varlen keep them apart
        return self.launch_prefill(prompts, cache, range(len(prompts)) if slots is None else slots).get()

    def decode_batch(self, ids: Ids, cache: "KVCache | PagedKVCache", slots: Sequence[int] | None = None) -> np.ndarray:
        """As `decode` with a token for each of several slots in one pass: logits [B, vocab_size] float32.

        slots: distinct ones, one per token; 0 … B − 1 when None. Errors are those of decode, also for another number
        of slots than tokens; then no slot of the cache has changed.
        """
        # s12.2: one row per slot
        return self.launch_decode(ids, cache, range(len(ids)) if slots is None else slots).get()

    def reserve(self, max_num_tokens: int, max_num_seqs: int) -> None:
        """Make room for passes over this many tokens and sequences, so that none of these allocates."""
        self._room(max_num_tokens, max_num_seqs if self._graphs is None else _padded(max_num_seqs))
        if self._staging.reserve(3 * max_num_tokens + 2 * max_num_seqs + 1):
            self._forget_graphs()

    def use_graphs(self) -> None:
        """Record the launches of decode steps from now on, and replay them: at small batches a step is otherwise bound
        by the time that the host needs for its launches."""
        self.stream = cuda.Stream()
        self._graphs = graphs.Graphs(self.stream)

    def launch_prefill(self, prompts: Sequence[Ids], cache: "KVCache | PagedKVCache", slots: Sequence[int]) -> GPUArray:
        """prefill_batch without waiting: the logits are on the GPU, valid until the next prefill is launched."""
        return self._prefill(prompts, cache, slots, self._attend_packed)

    def launch_decode(self, ids: Ids, cache: "KVCache | PagedKVCache", slots: Sequence[int]) -> GPUArray:
        """decode_batch without waiting: the logits are on the GPU, valid until the next decode is launched."""
        tokens = self.model.checked(ids)
        slots = _checked_slots(slots, len(tokens))
        past = np.array([cache.length(slot) for slot in slots])
        if not past.all():
            raise ValueError(f"slot {slots[past.argmin()]} holds no token yet: prefill it first")
        size = len(tokens)
        rows = size if self._graphs is None else _padded(size)
        a, logits = self._room(rows, rows)
        slot_mapping = cache.extend(dict.fromkeys(slots, 1))
        integers = [tokens, past, slot_mapping, past + 1, cache.tables(slots)]
        if rows > size:  # rows that no context is read for and nothing is written from
            integers = [_with_rows(array, rows, fill) for array, fill in zip(integers, (0, 0, -1, 0, 0), strict=True)]
        device = self._send(integers)

        def launch() -> None:
            self._decode(a, logits.decode, cache, *device)

        if self._graphs is None:
            launch()
        else:
            self._graphs.run((id(cache), rows), launch)
        return logits.decode[:size] if rows > size else logits.decode

    def _decode(
        self,
        a: Activations,
        logits: GPUArray,
        cache: "KVCache | PagedKVCache",
        ids: GPUArray,
        positions: GPUArray,
        slot_mapping: GPUArray,
        context_lens: GPUArray,
        tables: GPUArray,
    ) -> None:
        """All launches of a decode step."""

        def attend(layer: int) -> None:
            ops.write_kv(cache.key_caches[layer], cache.value_caches[layer], a.k, a.v, slot_mapping, self.stream)
            cache.attend(layer, a.attended, a.q, tables, context_lens, self.model.scale, self.stream)

        self.model.run(a, ids, positions, attend, self.stream)
        self.model.head(logits, a.hidden, a.normed, self.stream)

    def _prefill(
        self,
        prompts: Sequence[Ids],
        cache: "KVCache | PagedKVCache",
        slots: Sequence[int],
        attention: Callable[[Activations, GPUArray], None],
    ) -> GPUArray:
        """Launch a prefill whose prompts `attention` keeps apart: their last tokens' logits, on the GPU."""
        checked = [self.model.checked(prompt) for prompt in prompts]
        if not checked:
            raise ValueError("the batch is empty: give at least one prompt")
        slots = _checked_slots(slots, len(checked))
        counts = [len(prompt) for prompt in checked]
        ends = np.cumsum(counts)
        a, _ = self._room(sum(counts), len(counts))
        slot_mapping = cache.restart(dict(zip(slots, counts, strict=True)))
        positions = np.concatenate([np.arange(count) for count in counts])
        ids, positions, slot_mapping, cu_seqlens, last_rows = self._send(
            [np.concatenate(checked), positions, slot_mapping, np.concatenate([[0], ends]), ends - 1]
        )

        def attend(layer: int) -> None:
            ops.write_kv(cache.key_caches[layer], cache.value_caches[layer], a.k, a.v, slot_mapping, self.stream)
            attention(a, cu_seqlens)

        self.model.run(a, ids, positions, attend, self.stream)
        last, logits = self._room(len(counts), len(counts))
        ops.embedding(last.branch, a.hidden, last_rows, self.stream)  # a gather of rows, whatever the rows mean
        self.model.head(logits.prefill, last.branch, last.normed, self.stream)
        return logits.prefill

    def _attend_alone(self, a: Activations, cu_seqlens: GPUArray) -> None:
        ops.attention(a.attended, a.q, a.k, a.v, self.model.scale, self.stream)

    def _attend_packed(self, a: Activations, cu_seqlens: GPUArray) -> None:
        ops.attention_varlen(a.attended, a.q, a.k, a.v, cu_seqlens, cu_seqlens, self.model.scale, self.stream)

    def _room(self, num_tokens: int, num_seqs: int) -> tuple[Activations, Logits]:
        """What a pass reads and writes; the memory grows where it is too small."""
        have_tokens = self._activations.size if self._activations else 0
        have_seqs = self._logits.size if self._logits else 0
        if num_tokens > have_tokens or num_seqs > have_seqs:
            self._forget_graphs()
            self._activations = self._logits = None  # the old ones go before the new ones come
            most_seqs = max(num_seqs, have_seqs)
            most_tokens = max(num_tokens, have_tokens, most_seqs)
            self._activations = FirstRows(Activations.allocate(self.model.config, most_tokens))
            self._logits = FirstRows(Logits.allocate(self.model.config, most_seqs))
        return self._activations[num_tokens], self._logits[num_seqs]

    def _send(self, arrays: list[np.ndarray]) -> list[GPUArray]:
        """A pass's integers on the GPU, int32."""
        if self._staging.reserve(sum(array.size for array in arrays)):
            self._forget_graphs()
        return self._staging.send(arrays, self.stream)

    def _forget_graphs(self) -> None:
        """Recorded launches hold addresses that are about to change."""
        if self._graphs is not None:
            self._graphs.clear()


def _padded(rows: int) -> int:
    """The number of rows of a recorded step: few different ones, since each costs a recording and memory."""
    step = 1 if rows <= 2 else 4 if rows <= 8 else 8 if rows <= 64 else 16
    return -(-rows // step) * step


def _with_rows(array: np.ndarray, rows: int, value: int) -> np.ndarray:
    """The array with further rows of this value."""
    return np.concatenate([array, np.full((rows - len(array), *array.shape[1:]), value, array.dtype)])


def _checked_slots(slots: Sequence[int], count: int) -> list[int]:
    """The slots as a list; raises ValueError unless there are `count` distinct whole numbers."""
    try:
        slots = [operator.index(slot) for slot in slots]
    except TypeError:
        raise ValueError(f"slots are whole numbers, not {slots!r}") from None
    if len(slots) != count:
        raise ValueError(f"{len(slots)} slots were given for {count} prompts or tokens: one for each")
    if len(set(slots)) != count:
        raise ValueError(f"the slots must be distinct, not {slots}")
    return slots
