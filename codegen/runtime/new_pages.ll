; Whether large results that are new memory of the system are asked for in large pages, as their site's calls show.
;
; A large page costs a quarter of a millisecond to clear, a quarter of what its 512 small ones take.  But the host of a
; virtual machine may have taken back what lay free, and then gives each of its parts anew: some five milliseconds a
; page, where small ones are found among those that others have just left.  So a call that took longer than the fastest
; of its kernel by more than small pages would have cost is followed by calls without large ones, twice as many each
; time that this is so again.

%NewPages = type { ptr, i64, i64, i64 }               ; binding, its fastest call in ns, calls left without, how many last

@FEWEST_WITHOUT = internal constant i64 4
@MOST_WITHOUT = internal constant i64 64

; Whether to ask in this call.  Where the last call had another kernel nothing is known.
define internal i1 @asks_for_large(ptr %known, ptr %binding) {
  %before = load atomic ptr, ptr %known monotonic, align 8
  %same = icmp eq ptr %before, %binding
  br i1 %same, label %look, label %forget
forget:
  %fastest_at = getelementptr %NewPages, ptr %known, i32 0, i32 1
  %last_at = getelementptr %NewPages, ptr %known, i32 0, i32 3
  %old_left_at = getelementptr %NewPages, ptr %known, i32 0, i32 2
  store atomic i64 0, ptr %fastest_at monotonic, align 8
  store atomic i64 0, ptr %last_at monotonic, align 8
  store atomic i64 0, ptr %old_left_at monotonic, align 8
  store atomic ptr %binding, ptr %known monotonic, align 8
  ret i1 true
look:
  %left_at = getelementptr %NewPages, ptr %known, i32 0, i32 2
  %left = load atomic i64, ptr %left_at monotonic, align 8
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %count, label %yes
count:
  %less = sub i64 %left, 1
  store atomic i64 %less, ptr %left_at monotonic, align 8
  ret i1 false
yes:
  ret i1 true
}

; Takes note of a call that took so many nanoseconds; small pages cost a quarter of one for each byte.
define internal void @note_pages(ptr %known, i64 %bytes, i64 %took, i1 %asked) {
  %fastest_at = getelementptr %NewPages, ptr %known, i32 0, i32 1
  %before = load atomic i64, ptr %fastest_at monotonic, align 8
  %first = icmp eq i64 %before, 0
  %faster = icmp slt i64 %took, %before
  %is_fastest = or i1 %first, %faster
  %fastest = select i1 %is_fastest, i64 %took, i64 %before
  store atomic i64 %fastest, ptr %fastest_at monotonic, align 8
  br i1 %asked, label %judge, label %done
judge:
  %lost = sub i64 %took, %fastest
  %small = lshr i64 %bytes, 2
  %spread = lshr i64 %fastest, 2
  %most = add i64 %small, %spread
  %slow = icmp sgt i64 %lost, %most
  %last_at = getelementptr %NewPages, ptr %known, i32 0, i32 3
  br i1 %slow, label %without, label %fine
without:
  %last = load atomic i64, ptr %last_at monotonic, align 8
  %twice = shl i64 %last, 1
  %fewest = load i64, ptr @FEWEST_WITHOUT
  %most_without = load i64, ptr @MOST_WITHOUT
  %is_more = icmp sgt i64 %twice, %fewest
  %enough = select i1 %is_more, i64 %twice, i64 %fewest
  %is_less = icmp slt i64 %enough, %most_without
  %calls = select i1 %is_less, i64 %enough, i64 %most_without
  %left_at = getelementptr %NewPages, ptr %known, i32 0, i32 2
  store atomic i64 %calls, ptr %last_at monotonic, align 8
  store atomic i64 %calls, ptr %left_at monotonic, align 8
  ret void
fine:
  store atomic i64 0, ptr %last_at monotonic, align 8
  ret void
done:
  ret void
}
