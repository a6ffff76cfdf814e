; The host of kernels that XLA calls: its thread pool.  Types and XLA's functions are those of dispatcher.ll.

%Job = type { i64, i64, ptr, ptr, i64, i64, [0 x %Range] } ; references, ranges not done, body, data, n, ranges
%Range = type { i64, ptr, i64 }                       ; claimed, job, which

declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)

define internal void @fill_host(ptr %frame, ptr %binding, ptr %host) {
  %api_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %api_at
  %context = call ptr @context(ptr %frame)
  %limit_at = getelementptr %Binding, ptr %binding, i32 0, i32 1
  %limit = load i64, ptr %limit_at
  %threads = call i64 @hlotune_threads(ptr %api, ptr %context, i64 %limit)
  %threads_32 = trunc i64 %threads to i32
  %threads_at = getelementptr %Host, ptr %host, i32 0, i32 1
  %host_api_at = getelementptr %Host, ptr %host, i32 0, i32 2
  %host_context_at = getelementptr %Host, ptr %host, i32 0, i32 3
  store ptr @hlotune_parallel_for, ptr %host
  store i32 %threads_32, ptr %threads_at
  store ptr %api, ptr %host_api_at
  store ptr %context, ptr %host_context_at
  ret void
}

define i64 @hlotune_threads(ptr %api, ptr %context, i64 %limit) { ; those of the pool, at most limit
  %arguments = alloca %NumThreads
  %number = alloca i64
  %serial = icmp sle i64 %limit, 1
  br i1 %serial, label %one, label %ask
ask:
  store i64 1, ptr %number
  store %NumThreads { i64 32, ptr null, ptr null, ptr null }, ptr %arguments
  %context_at = getelementptr %NumThreads, ptr %arguments, i32 0, i32 2
  %number_at = getelementptr %NumThreads, ptr %arguments, i32 0, i32 3
  store ptr %context, ptr %context_at
  store ptr %number, ptr %number_at
  %num_threads = call ptr @api_function(ptr %api, i64 12)
  %error = call ptr %num_threads(ptr %arguments)
  %bad = icmp ne ptr %error, null
  br i1 %bad, label %no_pool, label %limited
no_pool:
  call void @discard(ptr %api, ptr %error)
  br label %one
limited:
  %of_pool = load i64, ptr %number
  %threads = call i64 @llvm.smin.i64(i64 %of_pool, i64 %limit)
  ret i64 %threads
one:
  ret i64 1
}

; [0, n) in as many contiguous ranges as there are threads, the same way in every loop, so that a row of the data stays
; with one core from kernel to kernel.  The caller runs range 0; range i is a task of the pool.  Whoever claims a range
; first runs it whole: when the caller is done with its own it takes those whose task has not started (the pool may be
; busy, or asleep), and waits only for those that run.  The job is on the heap and counts its users, since a task may
; start after the loop has returned; it then finds its range claimed.
define void @hlotune_parallel_for(ptr %host, i64 %n, ptr %body, ptr %data) {
  %threads_at = getelementptr %Host, ptr %host, i32 0, i32 1
  %threads = load i32, ptr %threads_at
  %most = sext i32 %threads to i64
  %ranges = call i64 @llvm.smin.i64(i64 %most, i64 %n)
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %choose, label %done
choose:
  %several = icmp sgt i64 %ranges, 1
  br i1 %several, label %start, label %inline
inline:
  call void %body(ptr %data, i64 0, i64 %n, i64 0)
  ret void
start:
  %job = call ptr @make_job(i64 %n, i64 %ranges, ptr %body, ptr %data)
  call void @schedule_all(ptr %host, ptr %job, i64 %ranges)
  call void @run_range(ptr %job, i64 0, i64 0)
  call void @take_unstarted(ptr %job, i64 %ranges)
  call void @wait(ptr %job)
  call void @drop(ptr %job)
  ret void
done:
  ret void
}

define internal ptr @make_job(i64 %n, i64 %ranges, ptr %body, ptr %data) {
entry:
  %ranges_bytes = mul i64 %ranges, 24
  %bytes = add i64 %ranges_bytes, 48
  %job = call ptr @malloc(i64 %bytes)
  %not_done_at = getelementptr %Job, ptr %job, i32 0, i32 1
  %body_at = getelementptr %Job, ptr %job, i32 0, i32 2
  %data_at = getelementptr %Job, ptr %job, i32 0, i32 3
  %n_at = getelementptr %Job, ptr %job, i32 0, i32 4
  %ranges_at = getelementptr %Job, ptr %job, i32 0, i32 5
  %others = add i64 %ranges, -1
  store i64 %ranges, ptr %job                          ; users: the caller, and a task for each other range
  store i64 %others, ptr %not_done_at
  store ptr %body, ptr %body_at
  store ptr %data, ptr %data_at
  store i64 %n, ptr %n_at
  store i64 %ranges, ptr %ranges_at
  br label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %next, %fill ]
  %claimed_at = getelementptr %Job, ptr %job, i32 0, i32 6, i64 %i, i32 0
  %job_at = getelementptr %Job, ptr %job, i32 0, i32 6, i64 %i, i32 1
  %which_at = getelementptr %Job, ptr %job, i32 0, i32 6, i64 %i, i32 2
  store i64 0, ptr %claimed_at
  store ptr %job, ptr %job_at
  store i64 %i, ptr %which_at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %ranges
  br i1 %more, label %fill, label %done
done:
  ret ptr %job
}

define internal void @schedule_all(ptr %host, ptr %job, i64 %ranges) {
entry:
  %api_at = getelementptr %Host, ptr %host, i32 0, i32 2
  %context_at = getelementptr %Host, ptr %host, i32 0, i32 3
  %api = load ptr, ptr %api_at
  %context = load ptr, ptr %context_at
  %schedule = call ptr @api_function(ptr %api, i64 11)
  %arguments = alloca %Schedule
  store %Schedule { i64 40, ptr null, ptr null, ptr @task, ptr null }, ptr %arguments
  %its_context_at = getelementptr %Schedule, ptr %arguments, i32 0, i32 2
  %data_at = getelementptr %Schedule, ptr %arguments, i32 0, i32 4
  store ptr %context, ptr %its_context_at
  br label %next
next:
  %i = phi i64 [ 1, %entry ], [ %following, %scheduled ]
  %range = getelementptr %Job, ptr %job, i32 0, i32 6, i64 %i
  store ptr %range, ptr %data_at
  %error = call ptr %schedule(ptr %arguments)
  %bad = icmp ne ptr %error, null
  br i1 %bad, label %no_pool, label %scheduled
no_pool:                                              ; then the caller takes the range
  call void @discard(ptr %api, ptr %error)
  call void @drop(ptr %job)
  br label %scheduled
scheduled:
  %following = add i64 %i, 1
  %more = icmp slt i64 %following, %ranges
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal void @task(ptr %range) {              ; runs in the pool
  %job_at = getelementptr %Range, ptr %range, i32 0, i32 1
  %which_at = getelementptr %Range, ptr %range, i32 0, i32 2
  %job = load ptr, ptr %job_at
  %which = load i64, ptr %which_at
  call void @claim_and_run(ptr %job, i64 %which, i64 %which)
  call void @drop(ptr %job)
  ret void
}

define internal void @take_unstarted(ptr %job, i64 %ranges) { ; from the end: the pool starts at the beginning
entry:
  br label %next
next:
  %above = phi i64 [ %ranges, %entry ], [ %i, %next ]
  %i = add i64 %above, -1
  call void @claim_and_run(ptr %job, i64 %i, i64 0)
  %more = icmp sgt i64 %i, 1
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal void @claim_and_run(ptr %job, i64 %which, i64 %slot) {
  %claimed_at = getelementptr %Job, ptr %job, i32 0, i32 6, i64 %which, i32 0
  %exchange = cmpxchg ptr %claimed_at, i64 0, i64 1 acq_rel acquire
  %ours = extractvalue { i64, i1 } %exchange, 1
  br i1 %ours, label %run, label %done
run:
  call void @run_range(ptr %job, i64 %which, i64 %slot)
  %not_done_at = getelementptr %Job, ptr %job, i32 0, i32 1
  %before = atomicrmw sub ptr %not_done_at, i64 1 release
  br label %done
done:
  ret void
}

define internal void @run_range(ptr %job, i64 %which, i64 %slot) {
  %body_at = getelementptr %Job, ptr %job, i32 0, i32 2
  %data_at = getelementptr %Job, ptr %job, i32 0, i32 3
  %n_at = getelementptr %Job, ptr %job, i32 0, i32 4
  %ranges_at = getelementptr %Job, ptr %job, i32 0, i32 5
  %body = load ptr, ptr %body_at
  %data = load ptr, ptr %data_at
  %n = load i64, ptr %n_at
  %ranges = load i64, ptr %ranges_at
  %following = add i64 %which, 1
  %begin = call i64 @bound(i64 %n, i64 %ranges, i64 %which)
  %end = call i64 @bound(i64 %n, i64 %ranges, i64 %following)
  call void %body(ptr %data, i64 %begin, i64 %end, i64 %slot)
  ret void
}

define internal i64 @bound(i64 %n, i64 %ranges, i64 %i) { ; where range i begins: ceil(n * i / ranges)
  %product = mul i64 %n, %i
  %sum = add i64 %product, %ranges
  %above = add i64 %sum, -1
  %bound = udiv i64 %above, %ranges
  ret i64 %bound
}

define internal void @wait(ptr %job) {                ; for ranges that other threads run now
entry:
  %not_done_at = getelementptr %Job, ptr %job, i32 0, i32 1
  br label %check
check:
  %spins = phi i64 [ 0, %entry ], [ %next, %spin ], [ 0, %yield ]
  %not_done = load atomic i64, ptr %not_done_at acquire, align 8
  %all = icmp eq i64 %not_done, 0
  br i1 %all, label %done, label %spin
spin:
  call void @pause()
  %next = add i64 %spins, 1
  %long = icmp sgt i64 %next, 4096
  br i1 %long, label %yield, label %check
yield:                                                ; its thread may have lost the core to this one
  %yielded = call i32 @sched_yield()
  br label %check
done:
  ret void
}

define internal void @drop(ptr %job) {
  %users = atomicrmw sub ptr %job, i64 1 acq_rel
  %last = icmp eq i64 %users, 1
  br i1 %last, label %free, label %done
free:
  call void @free(ptr %job)
  br label %done
done:
  ret void
}
