"""Prints what JAX calls the devices of a platform: a process for `devices.names_elsewhere`."""

import json
import sys

import jax

if __name__ == "__main__":
    print(json.dumps([d.device_kind for d in jax.devices(sys.argv[1])]))
