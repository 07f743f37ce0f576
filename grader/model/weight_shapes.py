"""Names and shapes of a Llama model's weights, and the size of what its cache keeps."""

from given.config import LlamaConfig
from given.contracts import BF16


def weight_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Every weight that a model of this configuration has, under Hugging Face's names; the head too if it is tied."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    block: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (key, hidden),
        "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()}
    return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (config.vocab_size, hidden)}


def kv_bytes_per_token(config: LlamaConfig) -> int:
    """Bytes of the keys and values of one token in all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * BF16.itemsize
