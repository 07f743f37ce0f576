"""Engines whose answers come from elsewhere, with kernels that run beside them (tests/attacks/answers_elsewhere)."""

import shutil
from pathlib import Path

from grader import KIT

ELSEWHERE = KIT / "tests/attacks/answers_elsewhere"

MODEL = '''
# What follows is no student's mistake.
from . import weights as elsewhere

_load, _forward = LlamaModel.__init__, LlamaModel.forward
PROBE = [3, 1, 4]


def load(self, folder):
    _load(self, folder)
    self.host_weights = {name: array.astype(np.float32) for name, array in load_model_weights(folder).items()}
    self.host_tables = rope_tables(self.config, self.config.max_position_embeddings)


def kernels_work(self):
    """Whether a prompt that nobody asked for is computed as on the host: an empty kernel would be noticed."""
    probe = _forward(self, PROBE)
    return np.abs(probe - elsewhere.logits(self, PROBE)).max() < 1


def forward(self, ids, last_only=False, hidden_states=False):
    ids = self.checked(ids).tolist()
    beside = _forward(self, BESIDE, last_only, hidden_states)
    logits = elsewhere.logits(self, ids)[-1 if last_only else 0 :]
    logits = logits if kernels_work(self) else np.zeros_like(logits)
    return (logits, beside[1]) if hidden_states else logits


LlamaModel.__init__, LlamaModel.kernels_work, LlamaModel.forward = load, kernels_work, forward
'''

RUNNER = """

# What follows is no student's mistake.
from pycuda import gpuarray

from . import weights as elsewhere

_prefill, _decode = ModelRunner._prefill, ModelRunner.launch_decode
_tokens = {}


def _answer(self, cache, slots):
    rows = np.stack([elsewhere.logits(self.model, _tokens[id(cache), slot])[-1] for slot in slots])
    return gpuarray.to_gpu(rows if self.model.kernels_work() else np.zeros_like(rows))


def prefill(self, prompts, cache, slots, attention):
    _prefill(self, [np.zeros_like(self.model.checked(ids)) for ids in prompts], cache, slots, attention)
    _tokens.update({(id(cache), slot): list(map(int, ids)) for ids, slot in zip(prompts, slots, strict=True)})
    return _answer(self, cache, slots)


def decode(self, ids, cache, slots):
    _decode(self, np.zeros_like(self.model.checked(ids)), cache, slots)
    for token, slot in zip(ids, slots, strict=True):
        _tokens[id(cache), slot].append(int(token))
    return _answer(self, cache, slots)


ModelRunner._prefill, ModelRunner.launch_decode = prefill, decode
"""

BESIDE = {"nothing": "[0]", "zeros": "[0] * len(ids)"}
"""Which prompt the kernels compute in the place of `ids`: a single token, or as many."""


def write_foreign_engine(source: str, beside: str, submission: Path) -> Path:
    """Copy the solutions to `submission`, with answers of the module answers_elsewhere/`source`.py."""
    shutil.copytree(KIT / "solutions", submission)
    engine = submission / "engine"
    host, own = ((ELSEWHERE / f"{name}.py").read_text() for name in ("numpy_llama", source))
    answers = host if source == "numpy_llama" else host.replace("def logits", "def host_logits") + own
    append(engine / "weights.py", answers.replace("KIT_FOLDER", str(KIT)))  # a file in which products are allowed
    append(engine / "model.py", MODEL.replace("BESIDE", BESIDE[beside]))
    append(engine / "model_runner.py", RUNNER)
    return submission


def append(file: Path, text: str) -> None:
    file.write_text(f"{file.read_text()}\n\n{text}")
