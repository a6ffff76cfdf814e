"""LLVM text that has Linux move memory into pages of 2 MiB, for the dispatcher.

In pages of 4 KiB the processor looks each up, and stops fetching ahead at its end: memory is read
at three quarters of the rate.  To move what lies in such pages took half a millisecond for each
large page where large ones were free, and seven where they had to be made.

Results are memory of XLA's that the next result will have, and may be advised for good.  Arguments
are a caller's: they are moved, and nothing else about their memory is changed.  So what its owner
keeps from large pages (`MADV_NOHUGEPAGE`) stays as it is, and so does all memory of a process that
wants none (`PR_SET_THP_DISABLE`).  Linux moves nothing before 6.1.

The large pages in which an array begins and ends have other memory too, as a rule that of arrays
beside it.  They are moved as well, if all of them is in memory, as a part of the same mapping: what
lies there keeps its values and addresses, and gets no advice.
"""

import mmap
import sys
from pathlib import Path

MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
"""By Linux's mman.h; a system without the second refuses it."""
LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PAGE_BYTES = 2 << 20
STRETCH_BYTES = 16 * PAGE_BYTES
"""What is looked at and moved by one call of the system; each may wait for other processors."""
MOVING_CALLS = 4
"""Calls of a site until nothing is moved any more: the first moves nothing, those behind it do."""
LEAST_BYTES, LEAST_OF_MANY, MANY_BYTES = 4 << 20, 1 << 20, 64 << 20
"""The smallest array that is moved; that of a call whose arguments and results have so many bytes
that no cache holds them, as the update of a network's parameters, and so many bytes."""


def functions() -> str:
    """Numbers of `settle`, and `@large_pages`, which is false where the system refused to move
    memory.

    It asks for large pages where memory is whole such pages: by advice where it is ours, and by
    moving it where that is wanted, with the pages in which it begins and ends; that Linux refuses
    these, as where another mapping begins, is no refusal.  A stretch is moved if all of its pages
    are there: others would be made, or read back from a disk.  A page of zeros that was only read
    counts as there, as to tell it apart takes a file of the system's: so zeros that nobody wrote
    may become memory.

    It does nothing on other systems than Linux, and where its owner wants no large pages.
    """
    numbers = {
        "moving_calls": MOVING_CALLS, "least_moved": LEAST_BYTES,
        "least_moved_of_many": LEAST_OF_MANY, "many_bytes": MANY_BYTES,
    }  # fmt: skip
    calls = "".join(f"@{name} = internal constant i64 {n}\n" for name, n in numbers.items())
    if sys.platform != "linux" or small_pages_alone():
        return f"{calls}{_HEAD}\n  ret i1 true\n}}"
    return f"{calls}{_are_there()}\n{_move_end()}\n{_large_pages()}"


def small_pages_alone() -> bool:
    """Whether the system's owner wants no large pages: Linux moves memory into some even so."""
    try:
        return "[never]" in LARGE_PAGES.read_text(encoding="ascii")
    except OSError:  # it has no such pages
        return True


_HEAD = "define internal i1 @large_pages(i64 %begin, i64 %bytes, i1 %is_ours, i1 %moves) {"


def _large_pages() -> str:
    return f"""{_HEAD}
  %padded = add i64 %begin, {PAGE_BYTES - 1}
  %low = and i64 %padded, {-PAGE_BYTES}
  %end = add i64 %begin, %bytes
  %high = and i64 %end, {-PAGE_BYTES}
  %some = icmp slt i64 %low, %high
  br i1 %some, label %whole, label %advised
whole:
  br i1 %is_ours, label %advise, label %advised
advise:
  %size = sub i64 %high, %low
  %status = call i32 @madvise(i64 %low, i64 %size, i32 {MADV_HUGEPAGE})
  br label %advised
advised:
  br i1 %moves, label %check, label %fine
check:
  %at = phi i64 [ %low, %advised ], [ %next, %look ], [ %next, %move ]
  %more = icmp slt i64 %at, %high
  br i1 %more, label %look, label %ends
look:
  %left = sub i64 %high, %at
  %is_last = icmp slt i64 %left, {STRETCH_BYTES}
  %stretch = select i1 %is_last, i64 %left, i64 {STRETCH_BYTES}
  %next = add i64 %at, %stretch
  %there = call i1 @are_there(i64 %at, i64 %stretch)
  br i1 %there, label %move, label %check
move:
  %refused = call i32 @madvise(i64 %at, i64 %stretch, i32 {MADV_COLLAPSE})
  %moved = icmp eq i32 %refused, 0
  br i1 %moved, label %check, label %refusal
ends:
  call void @move_end(i64 %begin)
  call void @move_end(i64 %end)
  br label %fine
fine:
  ret i1 true
refusal:
  ret i1 false
}}"""


def _move_end() -> str:
    """A function that moves the large page which is not whole on one side of an address."""
    return f"""define internal void @move_end(i64 %place) {{
  %page = and i64 %place, {-PAGE_BYTES}
  %is_inside = icmp ne i64 %page, %place
  br i1 %is_inside, label %look, label %done
look:
  %there = call i1 @are_there(i64 %page, i64 {PAGE_BYTES})
  br i1 %there, label %move, label %done
move:
  %status = call i32 @madvise(i64 %page, i64 {PAGE_BYTES}, i32 {MADV_COLLAPSE})
  br label %done
done:
  ret void
}}"""


def _are_there() -> str:
    """A function that says whether each page of a stretch is in memory."""
    return f"""declare i32 @madvise(i64, i64, i32)
declare i32 @mincore(i64, i64, ptr)
define internal i1 @are_there(i64 %begin, i64 %bytes) {{
entry:
  %pages = alloca [{STRETCH_BYTES // mmap.PAGESIZE} x i8]
  %status = call i32 @mincore(i64 %begin, i64 %bytes, ptr %pages)
  %known = icmp eq i32 %status, 0
  %count = udiv i64 %bytes, {mmap.PAGESIZE}
  br i1 %known, label %check, label %no
check:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %page_at = getelementptr i8, ptr %pages, i64 %i
  %page = load i8, ptr %page_at
  %there = trunc i8 %page to i1
  %next = add i64 %i, 1
  br i1 %there, label %check, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}"""
