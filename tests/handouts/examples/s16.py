"""The numbers of 16-engine.md; what was measured is that of the kit's README."""

import re
from collections.abc import Iterator

from grader import KIT
from tests.handouts.examples.s08 import CONFIG
from tests.handouts.examples.s14 import TABLES, TOKENS, cdiv, row_of
from tests.handouts.formats import many, num
from tests.handouts.pages import squeezed

TOKEN_1B, TOKEN_TINY = 2 * 16 * 8 * 64 * 2, 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim * 2
GIB = 2**30


def measured(pattern: str) -> list[float]:
    """The numbers in the one place of the kit's README that a pattern finds."""
    (found,) = re.findall(pattern, squeezed((KIT / "README.md").read_text()))
    return [float(number.replace(",", "")) for number in (found if isinstance(found, tuple) else (found,))]


def at_once() -> Iterator[str]:
    longest, held, size = 2048, 400, 16
    blocks = 4 * GIB // (size * TOKEN_1B)
    slots = 4 * GIB // (longest * TOKEN_1B)
    yield f"""On Llama 3.2 1B, with 4 GiB for keys and values, contexts of up to {num(longest)} tokens and requests
        that hold {held}"""
    yield f"| slots of {num(longest)} positions | 4 GiB / ({num(longest)} · {TOKEN_1B // 1024} KiB) | {slots} |"
    yield f"""| blocks of {size} | {num(blocks)} blocks of {size * TOKEN_1B // 1024} KiB, {cdiv(held, size)} for each |
        {blocks // cdiv(held, size)} |"""
    yield f"with every request at its longest, is back at {slots}."
    yield "A running request that stores n tokens takes one more in each step: n + 1 tokens, cdiv(n + 1, block_size)"
    yield "`cache.can_extend({slot: 1 for every running one})`"


def recompute_or_copy() -> Iterator[str]:
    (prefill,) = measured(r"A prefill of 4,096 tokens takes (\d+) ms;")
    bus = 25e9
    assert prefill / 4096 > 2e3 * TOKEN_1B / bus
    yield f"""
        For long requests that is faster: on an H200 the kit's prefill of {num(4096)} tokens takes {prefill:g} ms,
        {1e3 * prefill / 4096:.1f} µs a token, and copying a token's {TOKEN_1B // 1024} KiB out and in again takes
        {2e6 * TOKEN_1B / bus:.1f} µs at {bus / 1e9:g} GB/s.
    """
    yield "Step 4 is where mistakes are made. A running request with n tokens has n − 1 stored"
    yield "Prefill over all n tokens stores n and gives token n + 1."


def a_step_on_a_gpu() -> Iterator[str]:
    kernels, products = measured(r"A decode step is (\d+) launches and (\d+) matrix products")
    (graphs,) = measured(r"\| 1 \| \d+ \| (\d+) \| \d+ \|")
    layers = 16
    assert products == 7 * layers + 1
    assert kernels == 8 * layers + 3  # two norms and additions, rope, write_kv, attention, silu_mul; the ends
    yield f"""
        A decode step of Llama 3.2 1B has {kernels + products:g} of them: {kernels:g} of your kernels and {products:g}
        products. An H200 is done with them in {1e3 / graphs:.1f} ms ({graphs:g} steps a second, when the host does
        nothing but replay them from a CUDA graph), which leaves the host {1e6 / graphs / (kernels + products):.1f} µs
        for each; PyCUDA alone takes 6 µs for a launch.
    """


class Playing:
    """The figure's requests: their tokens, and which run, in the order of their admission."""

    size, pool, wanted = 4, 5, 7

    def __init__(self, prompts: dict[str, int]) -> None:
        self.prompts, self.tokens = prompts, dict(prompts)
        self.stored = dict.fromkeys(prompts, 0)
        self.waiting, self.running = list(prompts), list[str]()

    def free(self) -> int:
        return self.pool - sum(cdiv(n, self.size) for n in self.stored.values())

    def step(self) -> tuple[list[str], list[str], list[str]]:
        """Which were preempted, decoded and prefilled."""
        preempted = []
        while self.free() < sum(self.stored[name] % self.size == 0 for name in self.running):
            preempted.append(self.running.pop())
            self.stored[preempted[-1]] = 0
            self.waiting.insert(0, preempted[-1])
        decoded = list(self.running)
        for name in decoded:
            self.stored[name] += 1
        prefilled = []
        while self.waiting and cdiv(self.tokens[self.waiting[0]], self.size) <= self.free():
            prefilled.append(self.waiting.pop(0))
            self.stored[prefilled[-1]] = self.tokens[prefilled[-1]]
        self.running += prefilled
        for name in self.running:
            self.tokens[name] += 1
        return preempted, decoded, prefilled

    def given(self, name: str) -> int:
        return self.tokens[name] - self.prompts[name]

    def end(self) -> list[str]:
        """Those that have all their tokens leave."""
        ended = [name for name in self.running if self.given(name) == self.wanted]
        for name in ended:
            self.running.remove(name)
            self.stored[name] = 0
        return ended


def table_row(play: Playing, step: int, preempted: list[str], decoded: list[str], prefilled: list[str]) -> str:
    """The row of a step that was just played; those that have ended then leave."""
    columns = [f"{n}, {cdiv(n, play.size)}" if n else "–" for n in play.stored.values()]
    if step == 1:
        columns = [f"{column} blocks" for column in columns]
    free, given = play.free(), " ".join(f"{name.lower()}{play.given(name) - 1}" for name in sorted(play.running))
    ended = play.end()
    work = [f"preempt {name}" for name in preempted]
    work += [f"decode {', '.join(decoded)}{', which ends' if ended else ''}"] if decoded else []
    work += [f"prefill {', '.join(prefilled)}"] if prefilled else []
    over = f" over {play.stored['B']} tokens" if prefilled and step > 1 else ""
    waiting = " ".join(play.waiting)
    if preempted:
        waiting = f"B with {play.prompts['B']} + {play.given('B')} = {play.tokens['B']} tokens"
    cells = [str(step), "; ".join(work) + over, *columns, str(free), given, waiting]
    return squeezed(f"| {' | '.join(cells)} |")


def preemption() -> Iterator[str]:
    play = Playing({"A": 6, "B": 5})
    yield f"""The figure in words: {play.pool} blocks of {play.size} rows. A has a prompt of {play.tokens["A"]}
        tokens, B of {play.tokens["B"]}, each is to get {play.wanted}."""
    out = back = free = given = 0
    for step in range(1, 11):
        preempted, decoded, prefilled = play.step()
        if preempted:
            out, free = step, play.free()
        if prefilled:
            back, given = step, play.given("B") - 1
        yield table_row(play, step, preempted, decoded, prefilled)
    assert not play.running
    assert not play.waiting
    tokens = play.prompts["B"] + given
    needed = cdiv(tokens, play.size)
    assert free < needed
    yield f"""Why does B not come back in step {out} or {out + 1}, with {free} blocks free? It needs {needed}. And in
        step {back} it gets b{given}, not b{given - 1} once more."""
    yield f"""![Two requests in five blocks of four: B is preempted in step {out}, waits with {tokens} tokens, is
        prefilled over them in step {back}]"""
    yield f"the figure: prefill over {tokens}, gives b{given}"


def headroom() -> Iterator[str]:
    size, room = 4, 4
    b, a = 5 + room - 1, 6 + room - 1
    asked = cdiv(a, size) + cdiv(b, size)
    assert asked == 5
    yield f"""
        For the figure, with a headroom of {room}: B has a prompt of 5 tokens and may get four more, of which the fourth
        is not stored: {b} tokens, {cdiv(b, size)} blocks. A, likewise, 6 + {room - 1} = {a} tokens, {cdiv(a, size)}
        blocks. {asked} are asked for, 5 are there: both are admitted.
    """


def integers() -> Iterator[str]:
    size, longest = 4, 20
    width = cdiv(longest, size)
    tables = [list(table) for table in TABLES]
    assert TOKENS[1] % size == 0
    tables[1].append(1)
    yield f"""
        The figure in words: the pool and the tables of stage 14, blocks of {size} rows, sequences of {TOKENS[0]},
        {TOKENS[1]} and {TOKENS[2]} tokens, `max_length` {longest}, so that a table has M = {width} entries. A decode
        gives each one token more:
    """
    yield "| | sequence 0 | sequence 1 | sequence 2 | |"
    yield f"| position | {many(TOKENS, between=' | ')} | tokens stored before |"
    padded = [many([*table, *[-1] * (width - len(table))]) for table in tables]
    yield f"| block table | {' | '.join(padded)} | sequence 1 was at the end of its block and has taken block 1 |"
    rows = [
        f"{table[n // size]}·{size} + {n % size} = {row_of(table, n, size)}"
        for n, table in zip(TOKENS, tables, strict=True)
    ]
    yield f"| row | {' | '.join(rows)} | slot_mapping |"
    yield f"| context | {many([n + 1 for n in TOKENS], between=' | ')} | with the new token |"
    count = 4 * len(TOKENS) + len(TOKENS) * width
    yield f"block tables of three requests, {count} integers in one buffer]"


def sizes() -> Iterator[str]:
    block = 16 * TOKEN_TINY
    blocks = 2**20 // block
    yield f"""
        For `tiny` that is 16 · {num(TOKEN_TINY)} = {num(block)} bytes: 1 MiB gives {blocks} blocks, {blocks * 16}
        tokens. For Llama 3.2 1B it is {16 * TOKEN_1B // 1024} KiB.
    """
    yield "A block takes block_size · layers · 2 · Hkv · D · 2 bytes."
    longest = 8 * 16
    yield f"""
        With 8 blocks of 16, a prompt of {longest - 1} tokens gets one token, one of {longest} is refused, and one of
        100 with `max_tokens` {longest - 100} just fits.
    """


def counted_bytes() -> Iterator[str]:
    c, requests = CONFIG, 2
    heads = c.num_heads // c.num_kv_heads
    wide, narrow = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    layer = 2 * c.hidden_size * (wide + narrow) + 3 * c.hidden_size * c.intermediate_size
    weights = 2 * (c.num_layers * layer + c.vocab_size * c.hidden_size)
    early, late = (requests * context * TOKEN_TINY for context in (64, 512))
    grown = late - early
    yield f"""With `tiny` ({num(TOKEN_TINY)} bytes per token, Hq / Hkv = {heads}, {num(weights)} bytes of weights in
        products) and {requests} requests:"""
    yield f"| keys and values attended to at context 64 | {requests} · 64 · {num(TOKEN_TINY)} = {num(early)} bytes |"
    yield f"| at context 512 | {num(late)}; it grew by {num(grown)} |"
    yield f"""| writes may grow by | {num(grown / 4)}. An engine that gathers keys and values before attention writes
        {num(grown)} more |"""
    yield f"""| reads may grow by | 1.1 · {heads} · {num(grown)} = {num(int(1.1 * heads * grown))}: each key and
        value once"""
    yield f"""| reads altogether at context 64 | 1.1 · ({num(weights)} + {heads} · {num(early)}) =
        {num(int(1.1 * (weights + heads * early)))}. An engine"""


def memory_caps() -> Iterator[str]:
    rows, size = 6, 16
    blocks = rows * 512 // size
    each = cdiv(44, size)
    yield f"""
        a pool with the memory of {rows} contiguous rows of 512 tokens has {blocks} blocks of {size}. Requests that grow
        to 44 tokens have {each} blocks at the most, so {blocks // each} of them fit; {2 * rows} are asked for.
    """
    yield f"it leaves as much as 22 contiguous rows, of which the pool gets {rows}, and"
    yield f"There {2 * 22} must run at once, twice what a contiguous cache could hold"


EXAMPLES = (
    at_once, recompute_or_copy, a_step_on_a_gpu, preemption, headroom, integers, sizes, counted_bytes, memory_caps,
)  # fmt: skip
