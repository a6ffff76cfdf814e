"""A network of Keras 3 on its JAX backend; its weights are constants of the program.

tune run examples/frameworks/keras_images.py:model --budget 60s
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # before Keras is imported

import keras
import numpy as np


def model() -> tuple[keras.Model, tuple[np.ndarray, ...]]:
    """(8, 16, 16, 3) images to (8, 10) probabilities; a model of Keras is itself a function."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    network = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    return network, (np.random.default_rng(0).standard_normal((8, 16, 16, 3), np.float32),)
