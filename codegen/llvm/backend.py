"""The backend for CPUs: nests as LLVM text, objects in memory, calls through one custom call."""

from collections.abc import Mapping, Sequence

import numpy as np

from hlotune.codegen.backend import Array, Signature, SiteCode
from hlotune.codegen.built import Built, Packed
from hlotune.codegen.runtime.hosts import serial, threaded
from hlotune.codegen.runtime.loader import KERNEL, Loaded, load
from hlotune.codegen.runtime.prepacking import Plain, prepack
from hlotune.hlo.graph import numpy_dtype
from hlotune.schedules.errors import BuildError, WrongResult
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.large_pages import room
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Target


class _Llvm:
    """See `Backend` for what the verbs promise."""

    def emit(self, compute: Compute, schedule: Schedule, target: Target) -> Built:
        if not isinstance(target, CpuTarget):
            raise BuildError(f"expected a CPU to compile for, got {target.title}; name a CPU")
        # a process whose kernels are all kept builds nothing, and these take a tenth of a second
        from hlotune.codegen.llvm.compile import compile_object
        from hlotune.codegen.llvm.emit import emit
        from hlotune.schedules.algorithms.replay import replay
        from hlotune.schedules.ir.flops import executed_flops
        from hlotune.schedules.ir.in_place import in_place

        nest = replay(compute, schedule, target)
        emitted = emit(nest)
        names = [t.name for t in compute.arguments]
        packed = tuple(
            Packed(names.index(tensor), size, entry) for tensor, entry, size in emitted.packed
        )
        return Built(
            object=compile_object(emitted.text, target),
            scratch_bytes=emitted.scratch_bytes,
            packed=packed,
            flops=executed_flops(nest),
            threads=target.threads,
            algorithm=schedule.algorithm,
            tiles=any(s.tiles for s in nest.stages),
            in_place=in_place(nest),
        )

    def load(self, built: Built) -> Loaded:
        return load(built)

    def replacement(
        self, loaded: Loaded, signature: Signature, constants: Mapping[int, Array]
    ) -> SiteCode:
        # they need jax, and building does not
        from hlotune.codegen.runtime.call_module import Parts, replacement
        from hlotune.codegen.runtime.dispatcher import bind

        built = loaded.built
        bind(built.key, loaded)
        text = replacement(
            built.key,
            signature.arguments,
            signature.results,
            built.scratch_bytes,
            {p.argument: p.bytes for p in built.packed},
            signature.in_place,
            {k: Parts(len(constants[k]), kind) for k, kind in signature.stacks.items()},
        )
        forms = prepack(
            loaded,
            constants,
            threaded(built.threads),
            stacks=signature.stacks,
            room=lambda size: Plain.over(room(size)),
        )
        return SiteCode(text, tuple(forms[k] for k in sorted(forms)))

    def call(self, loaded: Loaded, signature: Signature, arguments: Sequence[Array]) -> list[Array]:
        """On this thread alone."""
        forms = prepack(loaded, dict(enumerate(arguments)), serial())
        inputs = [
            Plain.of(forms[k] if k in forms else np.ascontiguousarray(a).reshape(-1).view(np.uint8))
            for k, a in enumerate(arguments)
        ]
        outputs = [Plain(t.bytes) for t in signature.results]
        scratch = Plain(loaded.built.scratch_bytes)
        into, out = ([b.address for b in buffers] for buffers in (inputs, outputs))
        status = loaded.call(KERNEL, into, out, scratch.address, serial())
        if status:
            raise WrongResult(f"expected status 0, got {status}; the kernel gave up")
        return [
            o.data.view(numpy_dtype(t.dtype)).reshape(t.shape)
            for o, t in zip(outputs, signature.results, strict=True)
        ]


BACKEND = _Llvm()
