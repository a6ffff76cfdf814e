"""Small kernels in LLVM text, for tests of what runs kernels."""

from hlotune.codegen.built import Built, Packed
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime.loader import Loaded, load
from hlotune.schedules.targets.cpu import CpuTarget

DECLARATIONS = """
%Call = type { ptr, ptr, ptr, ptr }
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def target(
    isa: str = "x86-64", features: tuple[str, ...] = (), triple: str = "x86_64-unknown-linux-gnu"
) -> CpuTarget:
    return CpuTarget(
        kind="cpu", name="test", triple=triple, isa=isa, features=features,
        cores=2, threads=2, l1_bytes=32768, l2_bytes=1 << 20, l3_bytes=1 << 24,
    )  # fmt: skip


def build(
    text: str, threads: int = 1, scratch_bytes: int = 0, packed: tuple[Packed, ...] = ()
) -> Built:
    machine_code = compile_object(DECLARATIONS + text, target())
    return Built(machine_code, scratch_bytes, packed, 0, threads)


def add(n: int) -> Loaded:
    """`results[0][i] = args[0][i] + args[1][i]` for n f32."""
    return load(
        build(f"""
define i32 @kernel(ptr %call) {{
entry:
  %results_at = getelementptr %Call, ptr %call, i32 0, i32 1
  %args = load ptr, ptr %call
  %results = load ptr, ptr %results_at
  %second_at = getelementptr ptr, ptr %args, i64 1
  %a = load ptr, ptr %args
  %b = load ptr, ptr %second_at
  %y = load ptr, ptr %results
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %a_at = getelementptr float, ptr %a, i64 %i
  %b_at = getelementptr float, ptr %b, i64 %i
  %y_at = getelementptr float, ptr %y, i64 %i
  %left = load float, ptr %a_at
  %right = load float, ptr %b_at
  %sum = fadd float %left, %right
  store float %sum, ptr %y_at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {n}
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}""")
    )


def scale(factor: float, n: int, packed: tuple[Packed, ...] = ()) -> Loaded:
    """`results[0][i] = factor * args[0][i]` for n f32."""
    return load(
        build(
            f"""
define i32 @kernel(ptr %call) {{
entry:
  %results_at = getelementptr %Call, ptr %call, i32 0, i32 1
  %args = load ptr, ptr %call
  %results = load ptr, ptr %results_at
  %x = load ptr, ptr %args
  %y = load ptr, ptr %results
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x_at = getelementptr float, ptr %x, i64 %i
  %y_at = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %x_at
  %scaled = fmul float %value, {factor:e}
  store float %scaled, ptr %y_at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {n}
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}""",
            packed=packed,
        )
    )


def status_text(value: int) -> str:
    return f"define i32 @kernel(ptr %call) {{ ret i32 {value} }}"


def status(value: int) -> Loaded:
    return load(build(status_text(value)))


def visits(n: int, threads: int) -> Built:
    """`results[0][i]`: how often index i ran; `results[1][i]`: its slot (both i64)."""
    return build(
        f"""
define internal void @body(ptr %results, i64 %begin, i64 %end, i64 %slot) {{
entry:
  %slots_at = getelementptr ptr, ptr %results, i64 1
  %counts = load ptr, ptr %results
  %slots = load ptr, ptr %slots_at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %visit ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %visit, label %done
visit:
  %count_at = getelementptr i64, ptr %counts, i64 %i
  %slot_at = getelementptr i64, ptr %slots, i64 %i
  %old = load i64, ptr %count_at
  %new = add i64 %old, 1
  store i64 %new, ptr %count_at
  store i64 %slot, ptr %slot_at
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}}
define i32 @kernel(ptr %call) {{
  %results_at = getelementptr %Call, ptr %call, i32 0, i32 1
  %host_at = getelementptr %Call, ptr %call, i32 0, i32 3
  %results = load ptr, ptr %results_at
  %host = load ptr, ptr %host_at
  %counts = load ptr, ptr %results
  call void @llvm.memset.p0.i64(ptr %counts, i8 0, i64 {8 * n}, i1 false)
  %parallel_for = load ptr, ptr %host
  call void %parallel_for(ptr %host, i64 {n}, ptr @body, ptr %results)
  ret i32 0
}}""",
        threads,
    )


def order(n: int) -> Built:
    """Writes in `results[0][i]` (i64) the how-manieth index i was, of n."""
    return build(f"""
@clock = internal global i64 0
define internal void @body(ptr %places, i64 %begin, i64 %end, i64 %slot) {{
entry:
  br label %next
next:
  %i = phi i64 [ %begin, %entry ], [ %following, %next ]
  %place = atomicrmw add ptr @clock, i64 1 seq_cst
  %place_at = getelementptr i64, ptr %places, i64 %i
  store i64 %place, ptr %place_at
  %following = add i64 %i, 1
  %more = icmp slt i64 %following, %end
  br i1 %more, label %next, label %done
done:
  ret void
}}
define i32 @kernel(ptr %call) {{
  %results_at = getelementptr %Call, ptr %call, i32 0, i32 1
  %host_at = getelementptr %Call, ptr %call, i32 0, i32 3
  %results = load ptr, ptr %results_at
  %places = load ptr, ptr %results
  %host = load ptr, ptr %host_at
  %parallel_for = load ptr, ptr %host
  call void %parallel_for(ptr %host, i64 {n}, ptr @body, ptr %places)
  ret i32 0
}}""")


def reversal(n: int, threads: int) -> Built:
    """Loops over i64: `scratch[i] = 2 * args[0][i]`, then `results[0][i] = scratch[n - 1 - i]`."""

    def body(name: str, source: int, into: int, index: str, factor: int) -> str:
        return f"""
define internal void @{name}(ptr %call, i64 %begin, i64 %end, i64 %slot) {{
entry:
  %args = load ptr, ptr %call
  %results_at = getelementptr %Call, ptr %call, i32 0, i32 1
  %results = load ptr, ptr %results_at
  %p0 = load ptr, ptr %args
  %p1 = load ptr, ptr %results
  %scratch_at = getelementptr %Call, ptr %call, i32 0, i32 2
  %p2 = load ptr, ptr %scratch_at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %copy ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %copy, label %done
copy:
  %last = sub i64 {n - 1}, %i
  %from_at = getelementptr i64, ptr %p{source}, i64 {index}
  %to_at = getelementptr i64, ptr %p{into}, i64 %i
  %value = load i64, ptr %from_at
  %times = mul i64 %value, {factor}
  store i64 %times, ptr %to_at
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}}"""

    return build(
        body("double", 0, 2, "%i", 2)
        + body("reverse", 2, 1, "%last", 1)
        + f"""
define i32 @kernel(ptr %call) {{
  %host_at = getelementptr %Call, ptr %call, i32 0, i32 3
  %host = load ptr, ptr %host_at
  %parallel_for = load ptr, ptr %host
  call void %parallel_for(ptr %host, i64 {n}, ptr @double, ptr %call)
  call void %parallel_for(ptr %host, i64 {n}, ptr @reverse, ptr %call)
  ret i32 0
}}""",
        threads,
        scratch_bytes=8 * n,
    )


def guarded_scratch(words: int, rounds: int) -> Built:
    """Fills scratch with `args[0][0]` (i64) and looks again and again whether it stands there.

    Gives it as `results[0][0]`; status 1 where somebody else wrote to the scratch.
    """
    return build(
        f"""
define i32 @kernel(ptr %call) {{
entry:
  %args = load ptr, ptr %call
  %results_at = getelementptr %Call, ptr %call, i32 0, i32 1
  %results = load ptr, ptr %results_at
  %scratch_at = getelementptr %Call, ptr %call, i32 0, i32 2
  %scratch = load ptr, ptr %scratch_at
  %x = load ptr, ptr %args
  %y = load ptr, ptr %results
  %mine = load i64, ptr %x
  store i64 %mine, ptr %y
  br label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %next, %fill ]
  %to = getelementptr i64, ptr %scratch, i64 %i
  store volatile i64 %mine, ptr %to
  %next = add i64 %i, 1
  %filling = icmp slt i64 %next, {words}
  br i1 %filling, label %fill, label %look
look:
  %j = phi i64 [ 0, %fill ], [ %following, %fine ]
  %at = urem i64 %j, {words}
  %from = getelementptr i64, ptr %scratch, i64 %at
  %value = load volatile i64, ptr %from
  %same = icmp eq i64 %value, %mine
  br i1 %same, label %fine, label %overwritten
fine:
  %following = add i64 %j, 1
  %looking = icmp slt i64 %following, {words * rounds}
  br i1 %looking, label %look, label %done
overwritten:
  ret i32 1
done:
  ret i32 0
}}""",
        scratch_bytes=8 * words,
    )


def aligned(arguments: int, results: int) -> Loaded:
    """Status 0 where all pointers are multiples of 64 bytes; the results are left as they are."""
    lines = []
    for kind, count, place in (("args", arguments, 0), ("results", results, 1)):
        lines.append(f"  %{kind}_at = getelementptr %Call, ptr %call, i32 0, i32 {place}")
        lines.append(f"  %{kind} = load ptr, ptr %{kind}_at")
        for i in range(count):
            lines.append(f"  %{kind}{i}_at = getelementptr ptr, ptr %{kind}, i64 {i}")
            lines.append(f"  %{kind}{i} = load i64, ptr %{kind}{i}_at")
    values = [f"%args{i}" for i in range(arguments)] + [f"%results{i}" for i in range(results)]
    lines += [f"  %or{i + 1} = or i64 {f'%or{i}' if i else 0}, {v}" for i, v in enumerate(values)]
    lines += [f"  %low = and i64 %or{len(values)}, 63", "  %status = trunc i64 %low to i32"]
    body = "\n".join(lines)
    return load(build(f"define i32 @kernel(ptr %call) {{\n{body}\n  ret i32 %status\n}}"))
