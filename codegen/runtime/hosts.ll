; Hosts for direct calls.  Every function here is a parallel_for(host, n, body, data) of the ABI in loader.py.

%Host = type { ptr, i32, ptr }                        ; parallel_for, threads, state
%Range = type { i64, i64 }                            ; begin, end
%Task = type { i64, i32, ptr, ptr, i64, i64, i64 }    ; pthread_t, status of its start, body, data, begin, end, slot

declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i64 @llvm.smin.i64(i64, i64)

; ---- serial: one range, slot 0

define void @serial(ptr %host, i64 %n, ptr %body, ptr %data) {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %done
run:
  call void %body(ptr %data, i64 0, i64 %n, i64 0)
  br label %done
done:
  ret void
}

; ---- shuffled: [0, n) cut into ranges of 1 to 3, run one after another in random order, each with a random slot

define internal i64 @random(ptr %state) {             ; splitmix64
  %old = load i64, ptr %state
  %new = add i64 %old, -7046029254386353131
  store i64 %new, ptr %state
  %a = lshr i64 %new, 30
  %b = xor i64 %new, %a
  %c = mul i64 %b, -4658895280553007687
  %d = lshr i64 %c, 27
  %e = xor i64 %c, %d
  %f = mul i64 %e, -7723592293110705685
  %g = lshr i64 %f, 31
  %h = xor i64 %f, %g
  ret i64 %h
}

define internal i64 @random_below(ptr %state, i64 %limit) {
  %any = call i64 @random(ptr %state)
  %below = urem i64 %any, %limit
  ret i64 %below
}

define internal i64 @cut(ptr %state, i64 %n, ptr %ranges) {    ; fills ranges, returns how many
entry:
  br label %next
next:
  %begin = phi i64 [ 0, %entry ], [ %end, %next ]
  %i = phi i64 [ 0, %entry ], [ %count, %next ]
  %extra = call i64 @random_below(ptr %state, i64 3)
  %length = add i64 %extra, 1
  %stop = add i64 %begin, %length
  %end = call i64 @llvm.smin.i64(i64 %stop, i64 %n)
  %begin_at = getelementptr %Range, ptr %ranges, i64 %i, i32 0
  %end_at = getelementptr %Range, ptr %ranges, i64 %i, i32 1
  store i64 %begin, ptr %begin_at
  store i64 %end, ptr %end_at
  %count = add i64 %i, 1
  %more = icmp slt i64 %end, %n
  br i1 %more, label %next, label %done
done:
  ret i64 %count
}

define internal void @shuffle(ptr %state, ptr %ranges, i64 %count) {
entry:
  br label %check
check:
  %left = phi i64 [ %count, %entry ], [ %last, %swap ]
  %last = add i64 %left, -1
  %more = icmp sgt i64 %left, 1
  br i1 %more, label %swap, label %done
swap:
  %other = call i64 @random_below(ptr %state, i64 %left)
  %a_at = getelementptr %Range, ptr %ranges, i64 %last
  %b_at = getelementptr %Range, ptr %ranges, i64 %other
  %a = load %Range, ptr %a_at
  %b = load %Range, ptr %b_at
  store %Range %b, ptr %a_at
  store %Range %a, ptr %b_at
  br label %check
done:
  ret void
}

define internal void @run_ranges(ptr %host, ptr %ranges, i64 %count, ptr %body, ptr %data) {
entry:
  %state_at = getelementptr %Host, ptr %host, i32 0, i32 2
  %state = load ptr, ptr %state_at
  %threads_at = getelementptr %Host, ptr %host, i32 0, i32 1
  %threads = load i32, ptr %threads_at
  %slots = zext i32 %threads to i64
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %following, %next ]
  %begin_at = getelementptr %Range, ptr %ranges, i64 %i, i32 0
  %end_at = getelementptr %Range, ptr %ranges, i64 %i, i32 1
  %begin = load i64, ptr %begin_at
  %end = load i64, ptr %end_at
  %slot = call i64 @random_below(ptr %state, i64 %slots)
  call void %body(ptr %data, i64 %begin, i64 %end, i64 %slot)
  %following = add i64 %i, 1
  %more = icmp slt i64 %following, %count
  br i1 %more, label %next, label %done
done:
  ret void
}

define void @shuffled(ptr %host, i64 %n, ptr %body, ptr %data) {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %done
run:
  %state_at = getelementptr %Host, ptr %host, i32 0, i32 2
  %state = load ptr, ptr %state_at
  %bytes = mul i64 %n, 16
  %ranges = call ptr @malloc(i64 %bytes)
  %count = call i64 @cut(ptr %state, i64 %n, ptr %ranges)
  call void @shuffle(ptr %state, ptr %ranges, i64 %count)
  call void @run_ranges(ptr %host, ptr %ranges, i64 %count, ptr %body, ptr %data)
  call void @free(ptr %ranges)
  br label %done
done:
  ret void
}

; ---- threaded: one contiguous range a thread; threads are started and joined in every call

define internal i64 @bound(i64 %n, i64 %ranges, i64 %i) {      ; where range i begins: ceil(n * i / ranges)
  %product = mul i64 %n, %i
  %sum = add i64 %product, %ranges
  %above = add i64 %sum, -1
  %bound = udiv i64 %above, %ranges
  ret i64 %bound
}

define internal ptr @run_task(ptr %task) {
  %body_at = getelementptr %Task, ptr %task, i32 0, i32 2
  %data_at = getelementptr %Task, ptr %task, i32 0, i32 3
  %begin_at = getelementptr %Task, ptr %task, i32 0, i32 4
  %end_at = getelementptr %Task, ptr %task, i32 0, i32 5
  %slot_at = getelementptr %Task, ptr %task, i32 0, i32 6
  %body = load ptr, ptr %body_at
  %data = load ptr, ptr %data_at
  %begin = load i64, ptr %begin_at
  %end = load i64, ptr %end_at
  %slot = load i64, ptr %slot_at
  call void %body(ptr %data, i64 %begin, i64 %end, i64 %slot)
  ret ptr null
}

define internal void @start_task(ptr %task, i64 %n, i64 %ranges, i64 %i, ptr %body, ptr %data) {
  %following = add i64 %i, 1
  %begin = call i64 @bound(i64 %n, i64 %ranges, i64 %i)
  %end = call i64 @bound(i64 %n, i64 %ranges, i64 %following)
  %status_at = getelementptr %Task, ptr %task, i32 0, i32 1
  %body_at = getelementptr %Task, ptr %task, i32 0, i32 2
  %data_at = getelementptr %Task, ptr %task, i32 0, i32 3
  %begin_at = getelementptr %Task, ptr %task, i32 0, i32 4
  %end_at = getelementptr %Task, ptr %task, i32 0, i32 5
  %slot_at = getelementptr %Task, ptr %task, i32 0, i32 6
  store ptr %body, ptr %body_at
  store ptr %data, ptr %data_at
  store i64 %begin, ptr %begin_at
  store i64 %end, ptr %end_at
  store i64 %i, ptr %slot_at
  %status = call i32 @pthread_create(ptr %task, ptr null, ptr @run_task, ptr %task)
  store i32 %status, ptr %status_at
  ret void
}

define internal void @finish_task(ptr %task) {        ; a thread that could not be started: its range runs here
  %status_at = getelementptr %Task, ptr %task, i32 0, i32 1
  %status = load i32, ptr %status_at
  %started = icmp eq i32 %status, 0
  br i1 %started, label %join, label %run
join:
  %thread = load i64, ptr %task
  %joined = call i32 @pthread_join(i64 %thread, ptr null)
  ret void
run:
  %ran = call ptr @run_task(ptr %task)
  ret void
}

define void @threaded(ptr %host, i64 %n, ptr %body, ptr %data) {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %begin, label %done
begin:
  %threads_at = getelementptr %Host, ptr %host, i32 0, i32 1
  %threads = load i32, ptr %threads_at
  %most = zext i32 %threads to i64
  %ranges = call i64 @llvm.smin.i64(i64 %most, i64 %n)
  %tasks = alloca %Task, i64 %ranges
  br label %starting
starting:
  %i = phi i64 [ 1, %begin ], [ %i_next, %start ]
  %to_start = icmp slt i64 %i, %ranges
  br i1 %to_start, label %start, label %own
start:
  %task = getelementptr %Task, ptr %tasks, i64 %i
  call void @start_task(ptr %task, i64 %n, i64 %ranges, i64 %i, ptr %body, ptr %data)
  %i_next = add i64 %i, 1
  br label %starting
own:
  %end = call i64 @bound(i64 %n, i64 %ranges, i64 1)
  call void %body(ptr %data, i64 0, i64 %end, i64 0)
  br label %finishing
finishing:
  %j = phi i64 [ 1, %own ], [ %j_next, %finish ]
  %to_finish = icmp slt i64 %j, %ranges
  br i1 %to_finish, label %finish, label %done
finish:
  %started = getelementptr %Task, ptr %tasks, i64 %j
  call void @finish_task(ptr %started)
  %j_next = add i64 %j, 1
  br label %finishing
done:
  ret void
}
