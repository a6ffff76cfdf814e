"""A BERT-base encoder of 128 tokens in plain JAX with random weights, as something to tune.

Twelve layers, each of attention with twelve heads and of two dense layers, with residual sums and
layer norms behind both, as in Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers
for Language Understanding", 2018.

    tune run examples/bert_base.py:model --budget 3m
    tune run examples/bert_base.py:frozen --budget 3m      # weights are constants of the program
"""

from collections.abc import Callable

import jax
import numpy as np

from hlotune import freeze

TOKENS, WIDTH, HEADS, HIDDEN, LAYERS = 128, 768, 12, 3072, 12
Layer = dict[str, jax.Array]


def layer_norm(x: jax.Array, gain: jax.Array, bias: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * gain + bias


def attention(layer: Layer, x: jax.Array) -> jax.Array:
    """(1, tokens, width), with a query, a key and a value of each token for each head."""
    shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
    q, k, v = ((x @ layer[f"w{n}"] + layer[f"b{n}"]).reshape(shape) for n in "qkv")
    heads = jax.nn.dot_product_attention(q, k, v)
    return heads.reshape(x.shape) @ layer["wo"] + layer["bo"]


def encoded(layer: Layer, x: jax.Array) -> jax.Array:
    x = layer_norm(x + attention(layer, x), layer["g1"], layer["n1"])
    hidden = jax.nn.gelu(x @ layer["w1"] + layer["b1"], approximate=False)
    return layer_norm(x + hidden @ layer["w2"] + layer["b2"], layer["g2"], layer["n2"])


def forward(layers: list[Layer], x: jax.Array) -> jax.Array:
    """(1, 128, 768) embeddings to as many encodings."""
    for layer in layers:
        x = encoded(layer, x)
    return x


def model() -> tuple[Callable[..., jax.Array], tuple[object, ...]]:
    """What `tune` asks for: the function, and arguments to call it with."""
    rng = np.random.default_rng(0)

    def matrix(inputs: int, outputs: int) -> np.ndarray:
        return rng.normal(0, 0.02, (inputs, outputs)).astype(np.float32)

    layers = []
    for _ in range(LAYERS):
        layer = {f"w{n}": matrix(WIDTH, WIDTH) for n in "qkvo"}
        layer |= {"w1": matrix(WIDTH, HIDDEN), "w2": matrix(HIDDEN, WIDTH)}
        layer |= {f"b{n}": np.zeros(WIDTH, np.float32) for n in "qkvo2"}
        layer |= {"b1": np.zeros(HIDDEN, np.float32)}
        layer |= {name: np.ones(WIDTH, np.float32) for name in ("g1", "g2")}
        layer |= {name: np.zeros(WIDTH, np.float32) for name in ("n1", "n2")}
        layers.append(layer)
    return forward, (layers, rng.normal(size=(1, TOKENS, WIDTH)).astype(np.float32))


def frozen() -> tuple[Callable[..., jax.Array], tuple[object, ...]]:
    """The same with its weights as constants, as a network is served."""
    function, (layers, x) = model()
    return freeze(function, layers), (x,)
