"""Tokens whose characters are split in many ways, and how a stream of text is judged."""

from given.tokenizer import Tokenizer
from numpy.random import Generator

from grader.checking.api import Handle, Worker, require
from grader.oracle.references import ReferenceModel

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

TEXTS = (
    "Plain words, and more of them.",
    "東京は日本の首都です。你好，世界！",
    "naïve café: Ünïcödé, Ελληνικά, русский, ไทย",
    "🙂🙃 👩‍🔬👨‍👩‍👧‍👦 🇫🇷 e\u0301 🏳️‍🌈",
    "  spaces\n\tand \ufffd itself  ",
)


def texts(tiny: ReferenceModel, rng: Generator) -> list[list[int]]:
    """TEXTS as tokens, cut off within a character as well, and random tokens, whose bytes need not be characters."""
    tokenizer = Tokenizer.from_folder(tiny.folder)
    whole = [tokenizer.encode(text) for text in TEXTS]
    drawn = [rng.integers(tiny.config.vocab_size, size=size).tolist() for size in (1, 60)]
    return [[], *whole, *(ids[:-1] for ids in whole[1:4]), *drawn]


def new_detokenizer(worker: Worker, tiny: ReferenceModel) -> tuple[Handle, Handle]:
    """(a Detokenizer, the counted decode function that it has)."""
    decode = worker.call("grader.probes:CountedDecode", str(tiny.folder), keep=True)
    return worker.call("detokenizer.Detokenizer", decode, keep=True), decode


def push(worker: Worker, detokenizer: Handle, token: int) -> str:
    piece = worker.call(detokenizer.method("push"), token)
    require(isinstance(piece, str), f"push must return text, not {piece!r:.60}.", "INCORRECT_DTYPE")
    return str(piece)


def finish(worker: Worker, detokenizer: Handle) -> str:
    piece = worker.call(detokenizer.method("finish"))
    require(isinstance(piece, str), f"finish must return text, not {piece!r:.60}.", "INCORRECT_DTYPE")
    return str(piece)


def expect_text(worker: Worker, tiny: ReferenceModel, detokenizer: Handle, ids: list[int]) -> None:
    """Push all tokens: what is whole must be shown at once, and nothing that a later token would change."""
    tokenizer = Tokenizer.from_folder(tiny.folder)
    text, shown = tokenizer.decode(ids), ""
    for count, token in enumerate(ids, 1):
        shown += push(worker, detokenizer, token)
        told = f"After {count} of the tokens {ids}, the pieces are {shown!r:.200}; the text is {text!r:.200}."
        require(text.startswith(shown), told, hint="A piece was shown too early, twice, or in a wrong place.")
        so_far = tokenizer.decode(ids[:count])
        late = so_far != shown and not so_far.endswith(REPLACEMENT)
        require(not late, told, hint="Text was held back although its characters are whole.")
    shown += finish(worker, detokenizer)
    require(shown == text, f"All pieces of {ids} are {shown!r:.200}; the text is {text!r:.200}.")
