"""A product of matrices in LLVM text, right or with one of many faults, for tests of verification
and of workers.

Rows are tasks; each row is summed in scratch of its slot, then copied to the result.
"""

from string import Template

from hlotune.codegen.built import Built, Packed
from hlotune.codegen.llvm.compile import compile_object
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target

DEPTH, COLUMNS, SLOT_BYTES = 7, 5, 64

_TEXT = Template("""
%Call = type { ptr, ptr, ptr, ptr }
declare void @llvm.trap()

define void @rows(ptr %call, i64 %begin, i64 %end, i64 %slot) {
entry:
  %args = load ptr, ptr %call
  %results.at = getelementptr %Call, ptr %call, i64 0, i32 1
  %results = load ptr, ptr %results.at
  %scratch.at = getelementptr %Call, ptr %call, i64 0, i32 2
  %scratch = load ptr, ptr %scratch.at
  %x = load ptr, ptr %args
  %w.at = getelementptr ptr, ptr %args, i64 1
  %w = load ptr, ptr %w.at
  %out = load ptr, ptr %results
  %mine = mul i64 %slot, 64
  %sum = getelementptr i8, ptr %scratch, i64 %mine
  br label %row
row:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %row.done ]
  %x.row = mul i64 %i, 7
  %out.row = mul i64 %i, 5
  br label %clear
clear:
  %c = phi i64 [ 0, %row ], [ %c.next, %clear ]
  %clear.at = getelementptr float, ptr %sum, i64 %c
  store float 0.0, ptr %clear.at
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, 5
  br i1 %c.more, label %clear, label %tap
tap:
  %k = phi i64 [ 0, %clear ], [ %k.next, %tap.done ]
  %x.index = add i64 %x.row, %k
  %x.at = getelementptr float, ptr %x, i64 %x.index
  %a = load float, ptr %x.at
  %w.row = mul i64 %k, 5
  br label %column
column:
  %j = phi i64 [ 0, %tap ], [ %j.next, %column ]
  %w.index = add i64 %w.row, %j
  %b.at = getelementptr float, ptr %w, i64 %w.index
  %b = load float, ptr %b.at
  %sum.at = getelementptr float, ptr %sum, i64 %j
  %old = load volatile float, ptr %sum.at
  %product = fmul float %a, %b
  %new = fadd float %old, %product
  store volatile float %new, ptr %sum.at
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, 5
  br i1 %j.more, label %column, label %tap.done
tap.done:
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, 7
  br i1 %k.more, label %tap, label %copy
copy:
  %t = phi i64 [ 0, %tap.done ], [ %t.next, %copy ]
  %from = getelementptr float, ptr %sum, i64 %t
  %value = load float, ptr %from
  %to.index = add i64 %out.row, %t
  %place = getelementptr float, ptr %out, i64 %to.index
  store float %value, ptr %place
  %t.next = add i64 %t, 1
  %t.more = icmp slt i64 %t.next, 5
  br i1 %t.more, label %copy, label %row.done
row.done:
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %end
  br i1 %i.more, label %row, label %done
done:
  ret void
}

define i32 @kernel(ptr %call) {
  %host.at = getelementptr %Call, ptr %call, i64 0, i32 3
  %host = load ptr, ptr %host.at
  %parallel = load ptr, ptr %host
  call void %parallel(ptr %host, i64 $rows, ptr @rows, ptr %call)
  ret i32 0
}

define i32 @pack(ptr %call) {
entry:
  %args = load ptr, ptr %call
  %results.at = getelementptr %Call, ptr %call, i64 0, i32 1
  %results = load ptr, ptr %results.at
  %from = load ptr, ptr %args
  %to = load ptr, ptr %results
  br label %copy
copy:
  %t = phi i64 [ 0, %entry ], [ %t.next, %copy ]
  %from.at = getelementptr float, ptr %from, i64 %t
  %value = load float, ptr %from.at
  %to.at = getelementptr float, ptr %to, i64 %t
  store float %value, ptr %to.at
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, 35
  br i1 %more, label %copy, label %done
done:
  ret i32 0
}
""")

FAULTS: dict[str, tuple[str, str]] = {
    "the last tap is lost": ("%k.next, 7", "%k.next, 6"),
    "the first tap is doubled": (
        "%product = fmul float %a, %b",
        "%once = fmul float %a, %b\n  %twice = fadd float %once, %once\n"
        "  %is.first = icmp eq i64 %k, 0\n"
        "  %product = select i1 %is.first, float %twice, float %once",
    ),
    "channels are swapped": (
        "%w.index = add i64 %w.row, %j",
        "%w.back = sub i64 4, %j\n  %w.index = add i64 %w.row, %w.back",
    ),
    "weights are read transposed": (
        "%w.index = add i64 %w.row, %j",
        "%w.column = mul i64 %j, 7\n  %w.index = add i64 %w.column, %k",
    ),
    "the input is read one tap off": (
        "%x.index = add i64 %x.row, %k",
        "%k.off = add i64 %k, 1\n  %k.in = urem i64 %k.off, 7\n  %x.index = add i64 %x.row, %k.in",
    ),
    "scratch is not cleared": ("store float 0.0, ptr %clear.at", ""),
    "scratch is cleared to one": (
        "store float 0.0, ptr %clear.at",
        "store float 1.0, ptr %clear.at",
    ),
    "the last column is not written": ("%t.next, 5", "%t.next, 4"),
    "the sign is lost": (
        "%product = fmul float %a, %b",
        "%bits = bitcast float %b to i32\n  %plain = and i32 %bits, 2147483647\n"
        "  %size = bitcast i32 %plain to float\n  %product = fmul float %a, %size",
    ),
    "products are rounded to bfloat16": (
        "%product = fmul float %a, %b",
        "%long = fmul float %a, %b\n  %bits = bitcast float %long to i32\n"
        "  %short = and i32 %bits, -65536\n  %product = bitcast i32 %short to float",
    ),
    "the rounding depends on the slot": (
        "%product = fmul float %a, %b",
        "%long = fmul float %a, %b\n  %bits = bitcast float %long to i32\n"
        "  %first = icmp eq i64 %slot, 0\n  %mask = select i1 %first, i32 -1, i32 -65536\n"
        "  %short = and i32 %bits, %mask\n  %product = bitcast i32 %short to float",
    ),
    "the result depends on the slot": (
        "store float %value, ptr %place",
        "%number = sitofp i64 %slot to float\n  %much = fadd float %value, %number\n"
        "  store float %much, ptr %place",
    ),
    "rows after the first of a range start from its sum": (
        "store float 0.0, ptr %clear.at",
        "%is.first = icmp eq i64 %i, %begin\n  %kept = load float, ptr %clear.at\n"
        "  %start = select i1 %is.first, float 0.0, float %kept\n"
        "  store float %start, ptr %clear.at",
    ),
    "an argument is changed": (
        "store float %value, ptr %place",
        "store float %value, ptr %place\n  store float %value, ptr %x",
    ),
    "a constant is changed": (
        "store float %value, ptr %place",
        "store float %value, ptr %place\n  store float %value, ptr %w",
    ),
    "the float before the result is written": (
        "store float %value, ptr %place",
        "store float %value, ptr %place\n  %ahead = getelementptr i8, ptr %out, i64 -4\n"
        "  store float %value, ptr %ahead",
    ),
    "the kernel gives up": ("@rows, ptr %call)\n  ret i32 0", "@rows, ptr %call)\n  ret i32 3"),
}
"""What each fault replaces in the text.  None of these touches memory that is not the process's."""

CRASHES: dict[str, tuple[str, str]] = {
    "a read one element past the end": (
        "%x.index = add i64 %x.row, %k",
        "%x.here = add i64 %x.row, %k\n  %x.index = add i64 %x.here, 1",
    ),
    "a write one element past the end": ("%t.next, 5", "%t.next, 6"),
    "an illegal instruction": ("%mine = mul", "call void @llvm.trap()\n  %mine = mul"),
}

_HANG = ("%k.next = add i64 %k, 1", "%k.next = add i64 %k, 0")
SHARED_SCRATCH = ("%mine = mul i64 %slot, 64", "%mine = mul i64 %slot, 0")
SHORT_PACKING = ("icmp slt i64 %t.next, 35", "icmp slt i64 %t.next, 34")


def kernel(rows: int = 9) -> Kernel:
    x, w, y = (f"tensor<{s}xf32>" for s in (f"{rows}x7", "7x5", f"{rows}x5"))
    numbers = "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]"
    return Kernel(
        f"func.func @kernel(%arg0: {x}, %arg1: {w} {{hlotune.constant}}) -> ({y}) {{\n"
        f'  %0 = "stablehlo.dot_general"(%arg0, %arg1) '
        f"<{{dot_dimension_numbers = #stablehlo.dot<{numbers}>}}> : ({x}, {w}) -> {y}\n"
        f"  return %0 : {y}\n}}\n"
    )


def tiny_dot(
    fault: tuple[str, str] | None = None, rows: int = 9, packed: bool = False, flops: int = 0
) -> Built:
    """The kernel in machine code, with at most one fault."""
    text = _TEXT.substitute(rows=rows)
    if fault is not None:
        assert text.count(fault[0]) == 1, fault
        text = text.replace(*fault)
    form = (Packed(1, 4 * DEPTH * COLUMNS, "pack"),) if packed else ()
    return Built(compile_object(text, host_target()), 2 * SLOT_BYTES, form, flops, 2)


def hanging() -> Built:
    return tiny_dot(_HANG)
