"""Attack: the right logits from NumPy's products; no kernel runs."""

import numpy as np
from engine.rope import rope_tables
from engine.weights import load_model_weights
from given.config import LlamaConfig


def product(x, weight):
    return x @ weight.T


class LlamaModel:
    def __init__(self, model_dir):
        self.config = LlamaConfig.from_folder(model_dir)
        self.weights = {name: np.asarray(w, np.float32) for name, w in load_model_weights(model_dir).items()}

    def norm(self, x, name):
        deviation = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config.rms_norm_eps)
        return x / deviation * self.weights[name]

    def forward(self, ids, last_only=False, hidden_states=False):
        c, w = self.config, self.weights
        ids = np.asarray(ids)
        if not 0 < len(ids) <= c.max_position_embeddings or ids.min() < 0 or ids.max() >= c.vocab_size:
            raise ValueError("not a prompt of this model")
        cos, sin = rope_tables(c, len(ids))
        x = w["model.embed_tokens.weight"][ids]
        states = [x]
        for layer in range(c.num_layers):
            prefix = f"model.layers.{layer}."
            normed = self.norm(x, prefix + "input_layernorm.weight")
            q, k, v = (self.heads(product(normed, w[f"{prefix}self_attn.{name}_proj.weight"])) for name in "qkv")
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            x = x + product(self.attend(q, k, v), w[prefix + "self_attn.o_proj.weight"])
            normed = self.norm(x, prefix + "post_attention_layernorm.weight")
            gate, up = (product(normed, w[f"{prefix}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
            x = x + product(gate / (1 + np.exp(-gate)) * up, w[prefix + "mlp.down_proj.weight"])
            states.append(x)
        last = x[-1:] if last_only else x
        logits = product(self.norm(last, "model.norm.weight"), w["lm_head.weight"]).astype(np.float32)
        if not hidden_states:
            return logits
        import ml_dtypes

        return logits, [state.astype(ml_dtypes.bfloat16) for state in states]

    def heads(self, x):
        return x.reshape(len(x), -1, self.config.head_dim)

    def rotate(self, x, cos, sin):
        first, second = np.split(x, 2, axis=-1)
        c, s = cos[:, None], sin[:, None]
        return np.concatenate([first * c - second * s, second * c + first * s], axis=-1)

    def attend(self, q, k, v):
        length, group = len(q), q.shape[1] // k.shape[1]
        rows = []
        for head in range(q.shape[1]):
            scores = product(q[:, head], k[:, head // group]) / np.sqrt(self.config.head_dim)
            scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            rows.append(product(weights / weights.sum(axis=-1, keepdims=True), v[:, head // group].T))
        return np.stack(rows, axis=1).reshape(length, -1)
