"""The numbers of 09-kv-cache.md."""

from collections.abc import Iterator

from given.config import LlamaConfig

from tests.handouts.examples.s07 import KEYS, SCALE, VALUES, Q, attend, short, squares
from tests.handouts.examples.s08 import CONFIG
from tests.handouts.formats import many, num

LAYERS, KV_HEADS, HEAD_DIM = 16, 8, 64
"""Llama 3.2 1B."""
LENGTH = 6


def rows_computed(prompt: int, new: int) -> tuple[list[int], list[int]]:
    """The rows of each pass for these new tokens, without a cache and with one."""
    return list(range(prompt, prompt + new)), [prompt, *[1] * (new - 1)]


def recomputation() -> Iterator[str]:
    prompt, new = 4, 6
    without, cached = rows_computed(prompt, new)
    long, short_ = (sum(rows) for rows in rows_computed(100, 100))
    yield f"""
        The figure in words: a prompt of {prompt} tokens, {new} new ones. Without a cache the passes have
        {many(without[:-1])} and {without[-1]} rows, {sum(without)} together, {sum(without) - sum(cached)} of them in
        vain. With one they have {many(cached)}: {sum(cached)} rows. The gap grows with the square of the length: for a
        prompt of 100 tokens and 100 new ones it is {num(long)} rows against {short_}.
    """
    yield f"![Rows computed for six new tokens: {sum(without)} without a cache, {sum(cached)} with one]"


def token_bytes(layers: int, kv_heads: int, head_dim: int) -> tuple[str, int]:
    total = 2 * layers * kv_heads * head_dim * 2
    return f"2 · {layers} · {kv_heads} · {head_dim} · 2 = {num(total)}", total


def memory() -> Iterator[str]:
    config: LlamaConfig = CONFIG
    product, each = token_bytes(config.num_layers, config.num_kv_heads, config.head_dim)
    longest = config.max_position_embeddings
    yield "2 · layers · Hkv · D numbers of 2 bytes."
    yield f"""| `tiny`: {config.num_layers} layers, Hkv = {config.num_kv_heads}, D = {config.head_dim} | {product} |
        {num(longest)} tokens, the most it takes: {longest * each / 2**20:g} MiB |"""
    product, each = token_bytes(LAYERS, KV_HEADS, HEAD_DIM)
    yield f"""| Llama 3.2 1B: {LAYERS} layers, Hkv = {KV_HEADS}, D = {HEAD_DIM} | {product} | {num(4096)} tokens:
        {4096 * each / 2**20:g} MiB |"""


def decode() -> Iterator[str]:
    scores, p, out = attend(Q[1], KEYS, VALUES)
    yield f"""
        By hand, the example of stage 7: keys {", ".join(squares(KEYS))} and values {", ".join(squares(VALUES))} lie
        in a slot, the last of each written just now, context_lens = {len(KEYS)}. The query {squares(Q)[1]} with
        scale {SCALE:.5f} has scores {short(scores)}, p = {short(p)} and output {short(out)}: row 1 of that table,
        which was computed there together with row 0.
    """
    yield "Attention then has L = 1 query over S = n + 1 keys"
    yield "| position, for rope | n | the first token has position 0 |"
    yield "| keys in the context | n + 1 | the token sees itself |"
    yield "the hidden state of token t depends on the tokens 0 … t only"


def growth() -> Iterator[str]:
    prompt, room = 4, 8
    decodes = [(prompt + n, prompt + n + 1) for n in range(3)]
    yield f"""
        The figure in words: the prompt has {prompt} tokens, the slot room for {room}. Prefill computes and writes the
        positions 0 to {prompt - 1}; its logits give token "the". Decoding "the" writes position {decodes[0][0]} and
        reads {decodes[0][1]} positions, decoding "mat" writes {decodes[1][0]} and reads {decodes[1][1]}, decoding "."
        writes {decodes[2][0]} and reads {decodes[2][1]}.
    """
    writes = [at for at, _ in decodes]
    yield f"""![A slot of the cache: prefill writes positions 0 to {prompt - 1}, three decodes write {many(writes[:2])}
        and {writes[2]}]"""
    yield "It must not be read: on the emulator it is NaN, and 0 · NaN is NaN."


def slot_mapping() -> Iterator[str]:
    held, counts = [4, 0, 1], [1, 3, 2]
    rows = [[s * LENGTH + held[s] + i for i in range(counts[s])] for s in range(3)]
    flat = [row for own in rows for row in own]
    yield f"""
        The figure in words: 3 slots of length {LENGTH}, holding {many(held[:2])} and {held[2]} tokens. A call brings
        {counts[0]} token for slot 0, {counts[1]} for slot 1 and {counts[2]} for slot 2. Their rows: 0·{LENGTH} +
        {held[0]} = {many(rows[0])}; 1·{LENGTH} + 0, 1, 2 = {many(rows[1])}; 2·{LENGTH} + 1, 2 = {many(rows[2])}. So
        slot_mapping = {many(flat)}.
    """
    yield f"![Six tokens of three sequences go to the rows {many(flat)}]"
    yield f"""
        with lengths {many(held)} and max_length = {LENGTH}, `extend({{0: 1, 1: 3, 2: 2}})` returns {many(flat)};
        `extend({{2: 2, 0: 1}})` would return {many([*rows[2], *rows[0]])}. Then `extend({{0: 2}})` raises
        `RequestTooLong`, and lengths stay {many(h + c for h, c in zip(held, counts, strict=True))}.
    """
    assert held[0] + counts[0] + 2 > LENGTH
    yield """if −1 were taken for row 0, then with slot_mapping = 0, −1 thread 5 of block 0 and thread 5 of block 1
        would both store `key_cache[5]`."""
    yield "A row number of −1 means: do not store this token."


def large_offsets() -> Iterator[str]:
    width = 1024
    yield f"with rows of {num(width)} numbers that is row {num(2**31 // width)}. Multiply in 64 bits"
    yield f"row {num(2**31 // width)} of {num(width)} numbers"
    yield "A cache may well have more than 2³¹ elements:"


def mistakes() -> Iterator[str]:
    yield f"a prompt of 1 token: the first decode has position {1}"
    yield "context_lens = n + 1 after a prefill of n"
    yield "context 3 of length 64"
    yield f"4 · length above 99 KB: {num(99 * 1024 / 4)} positions"
    yield "prefill 5 tokens, then 3: `length` must be 3"
    yield "restart of max_length + 1 tokens, then `length`"
    yield "slot_mapping 3, −1, 5"
    yield "contexts 3 and 7"


EXAMPLES = (recomputation, memory, decode, growth, slot_mapping, large_offsets, mistakes)
