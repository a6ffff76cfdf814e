; The host of kernels that XLA calls: threads of our own, one bound to each processor.
;
; XLA's pool will not do: the system wakes its threads on any processor, and as often as not on that of the caller, or
; leaves them in line behind a thread that spins.  Then a loop of two threads takes as long as on one.  A thread that
; is bound to a processor can only wake there, and the caller knows its own.  Types and XLA's functions are those of
; dispatcher.ll; thread_pool.py makes the threads.

%Crew = type { ptr, i64 }                             ; workers, how many: those of kernels that XLA calls in @crew
; mail, asleep, processor, callers here, -, semaphore, until when it keeps its processor while it looks for work
%Worker = type { ptr, i32, i32, i32, i32, [32 x i8], i64, [64 x i8] }
%Job = type { i64, i64, ptr, ptr, i64, i64, [0 x %Range] } ; references, ranges not done, body, data, n, ranges
%Range = type { i64, ptr, i64 }                       ; claimed, job, which

@crew = internal global %Crew zeroinitializer

declare i32 @sched_yield()
declare i32 @sem_init(ptr, i32, i32)
declare i32 @sem_wait(ptr)
declare i32 @sem_post(ptr)
declare i64 @llvm.smin.i64(i64, i64)

define void @hlotune_crew(ptr %workers, i64 %count) { ; before any kernel runs
  %count_at = getelementptr %Crew, ptr @crew, i32 0, i32 1
  store ptr %workers, ptr @crew
  store i64 %count, ptr %count_at
  ret void
}

define internal void @fill_host(ptr %frame, ptr %binding, ptr %host) {
  %api_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %api_at
  %context = call ptr @context(ptr %frame)
  %limit_at = getelementptr %Binding, ptr %binding, i32 0, i32 1
  %of_kernel = load i64, ptr %limit_at
  %count_at = getelementptr %Crew, ptr @crew, i32 0, i32 1
  %count = load i64, ptr %count_at
  %limit = call i64 @llvm.smin.i64(i64 %of_kernel, i64 %count)
  %threads = call i64 @hlotune_threads(ptr %api, ptr %context, i64 %limit)
  %threads_32 = trunc i64 %threads to i32
  %threads_at = getelementptr %Host, ptr %host, i32 0, i32 1
  %crew_at = getelementptr %Host, ptr %host, i32 0, i32 2
  store ptr @hlotune_parallel_for, ptr %host
  store i32 %threads_32, ptr %threads_at
  store ptr @crew, ptr %crew_at
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

; [0, n) in as many contiguous ranges as there are threads, the same way in every loop, and range i on the processor of
; worker i, so that a row of the data stays with one core from kernel to kernel.  The caller runs the range of its own
; processor, the first where it has none, and mails the others.  Whoever claims a range first runs it whole: when the
; caller is done with its own it takes those that nobody has begun, and waits only for those that run.  The job is on
; the heap and counts its users, since mail may be read after the loop has returned; the range is claimed by then.
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
  %crew_at = getelementptr %Host, ptr %host, i32 0, i32 2
  %crew = load ptr, ptr %crew_at
  %here = call ptr @worker_here(ptr %crew)
  call void @count_caller(ptr %here, i32 1)
  %own = call i64 @own_range(ptr %crew, ptr %here, i64 %ranges)
  %job = call ptr @make_job(i64 %n, i64 %ranges, ptr %body, ptr %data)
  call void @mail_all(ptr %crew, ptr %job, i64 %ranges, i64 %own)
  call void @claim_and_run(ptr %job, i64 %own)
  call void @take_unstarted(ptr %job, i64 %ranges)
  call void @wait(ptr %job)
  call void @count_caller(ptr %here, i32 -1)
  call void @drop(ptr %job)
  ret void
done:
  ret void
}

define internal ptr @worker_here(ptr %crew) {         ; the worker on this processor, or null
entry:
  %count_at = getelementptr %Crew, ptr %crew, i32 0, i32 1
  %workers = load ptr, ptr %crew
  %count = load i64, ptr %count_at
  %processor = call i32 @processor()
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %none
look:
  %worker = getelementptr %Worker, ptr %workers, i64 %i
  %its_at = getelementptr %Worker, ptr %worker, i32 0, i32 2
  %its = load i32, ptr %its_at
  %next = add i64 %i, 1
  %same = icmp eq i32 %its, %processor
  br i1 %same, label %found, label %check
found:
  ret ptr %worker
none:
  ret ptr null
}

define internal void @count_caller(ptr %here, i32 %change) {
  %some = icmp ne ptr %here, null
  br i1 %some, label %count, label %done
count:
  %callers_at = getelementptr %Worker, ptr %here, i32 0, i32 3
  %before = atomicrmw add ptr %callers_at, i32 %change seq_cst
  br label %done
done:
  ret void
}

define internal i64 @own_range(ptr %crew, ptr %here, i64 %ranges) {
  %some = icmp ne ptr %here, null
  br i1 %some, label %locate, label %first
locate:
  %workers = load ptr, ptr %crew
  %a = ptrtoint ptr %here to i64
  %b = ptrtoint ptr %workers to i64
  %bytes = sub i64 %a, %b
  %position = udiv i64 %bytes, 128
  %has_one = icmp slt i64 %position, %ranges
  br i1 %has_one, label %own, label %first
own:
  ret i64 %position
first:
  ret i64 0
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
  store i64 1, ptr %job                                ; users: the caller, and later each range in the mail
  store i64 %ranges, ptr %not_done_at
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

define internal void @mail_all(ptr %crew, ptr %job, i64 %ranges, i64 %own) {
entry:
  %count_at = getelementptr %Crew, ptr %crew, i32 0, i32 1
  %workers = load ptr, ptr %crew
  %count = load i64, ptr %count_at
  %end = call i64 @llvm.smin.i64(i64 %ranges, i64 %count)
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %following ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %look, label %done
look:
  %is_own = icmp eq i64 %i, %own
  br i1 %is_own, label %following, label %mail
mail:
  %worker = getelementptr %Worker, ptr %workers, i64 %i
  call void @mail(ptr %worker, ptr %job, i64 %i)
  br label %following
following:
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}

; To a worker on whose processor no loop is called now, and who has no mail; else the range is left to the caller.
define internal void @mail(ptr %worker, ptr %job, i64 %which) {
  %callers_at = getelementptr %Worker, ptr %worker, i32 0, i32 3
  %callers = load atomic i32, ptr %callers_at monotonic, align 4
  %free = icmp eq i32 %callers, 0
  br i1 %free, label %post, label %done
post:
  %range = getelementptr %Job, ptr %job, i32 0, i32 6, i64 %which
  %users = atomicrmw add ptr %job, i64 1 monotonic
  %exchange = cmpxchg ptr %worker, ptr null, ptr %range seq_cst monotonic
  %posted = extractvalue { ptr, i1 } %exchange, 1
  br i1 %posted, label %wake, label %take_back
take_back:
  call void @drop(ptr %job)
  ret void
wake:
  %asleep_at = getelementptr %Worker, ptr %worker, i32 0, i32 1
  %was = atomicrmw xchg ptr %asleep_at, i32 0 seq_cst
  %asleep = icmp ne i32 %was, 0
  br i1 %asleep, label %ring, label %done
ring:
  %semaphore = getelementptr %Worker, ptr %worker, i32 0, i32 5
  %rung = call i32 @sem_post(ptr %semaphore)
  br label %done
done:
  ret void
}

; How often a worker looks for mail before it sleeps: 2048 times take some 50 us on a Zen 4, the gap between two calls
; of a program.  The next call of a program comes some 200 to 400 us later, as Python and JAX find the caches full of
; something else; it is waited for where XLA has next to nothing to compute, whose threads look for an idle processor.
@looks = internal global i64 2048

define internal void @look_for(i64 %times) {
  %before = load atomic i64, ptr @looks monotonic, align 8
  %same = icmp eq i64 %before, %times
  br i1 %same, label %done, label %change
change:
  store atomic i64 %times, ptr @looks monotonic, align 8
  br label %done
done:
  ret void
}

define void @hlotune_work(ptr %worker) {              ; the life of a worker: never returns
entry:
  %semaphore = getelementptr %Worker, ptr %worker, i32 0, i32 5
  %made = call i32 @sem_init(ptr %semaphore, i32 0, i32 0)
  br label %look
look:
  %spins = phi i64 [ 0, %entry ], [ 0, %serve ], [ %next, %looked ], [ 0, %sleep ]
  %mail = load atomic ptr, ptr %worker acquire, align 8
  %some = icmp ne ptr %mail, null
  br i1 %some, label %serve, label %spin
serve:
  call void @hlotune_serve(ptr %worker)
  br label %look
spin:
  call void @pause()
  %next = add i64 %spins, 1
  %place = and i64 %next, 31
  %whole = icmp eq i64 %place, 0
  %late = icmp sge i64 %next, 128                     ; some 3 us there: behind a kernel the next has come by then
  %due = and i1 %whole, %late
  br i1 %due, label %share, label %looked
share:                                                ; once a microsecond there
  call void @give_way(ptr %worker)
  br label %looked
looked:
  %looks = load atomic i64, ptr @looks monotonic, align 8
  %long = icmp sgt i64 %next, %looks
  br i1 %long, label %sleep, label %look
sleep:
  call void @sleep(ptr %worker, ptr %semaphore)
  br label %look
}

; Lets another thread run that waits for the processor: one of XLA's or Python's, which the program waits for, is soon
; done.  One that is not, of another process as a rule, would have the processor for some milliseconds each time; behind
; such a one the worker keeps its processor for a tenth of a second.
define internal void @give_way(ptr %worker) {
  %until_at = getelementptr %Worker, ptr %worker, i32 0, i32 6
  %until = load i64, ptr %until_at
  %before = call i64 @now()
  %keeps = icmp slt i64 %before, %until
  br i1 %keeps, label %done, label %share
share:
  %yielded = call i32 @sched_yield()
  %after = call i64 @now()
  %away = sub i64 %after, %before
  %long = icmp sgt i64 %away, 1000000
  br i1 %long, label %keep, label %done
keep:
  %later = add i64 %after, 100000000
  store i64 %later, ptr %until_at
  br label %done
done:
  ret void
}

; Mail that comes after the worker says that it sleeps rings; mail that came before is seen here.
define internal void @sleep(ptr %worker, ptr %semaphore) {
  %asleep_at = getelementptr %Worker, ptr %worker, i32 0, i32 1
  %before = atomicrmw xchg ptr %asleep_at, i32 1 seq_cst
  %mail = load atomic ptr, ptr %worker seq_cst, align 8
  %some = icmp ne ptr %mail, null
  br i1 %some, label %stay, label %rest
stay:
  %was = atomicrmw xchg ptr %asleep_at, i32 0 seq_cst
  %rings = icmp eq i32 %was, 0                        ; somebody rings, or has: the ring must not be left over
  br i1 %rings, label %rest, label %done
rest:
  %woken = call i32 @sem_wait(ptr %semaphore)
  br label %done
done:
  ret void
}

define void @hlotune_serve(ptr %worker) {             ; does what is in the mail, if anything
  %range = atomicrmw xchg ptr %worker, ptr null acq_rel
  %some = icmp ne ptr %range, null
  br i1 %some, label %run, label %done
run:
  %job_at = getelementptr %Range, ptr %range, i32 0, i32 1
  %which_at = getelementptr %Range, ptr %range, i32 0, i32 2
  %job = load ptr, ptr %job_at
  %which = load i64, ptr %which_at
  call void @claim_and_run(ptr %job, i64 %which)
  call void @drop(ptr %job)
  br label %done
done:
  ret void
}

define internal void @take_unstarted(ptr %job, i64 %ranges) { ; from the end: the mail went out from the beginning
entry:
  br label %next
next:
  %above = phi i64 [ %ranges, %entry ], [ %i, %next ]
  %i = add i64 %above, -1
  call void @claim_and_run(ptr %job, i64 %i)
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal void @claim_and_run(ptr %job, i64 %which) {
  %claimed_at = getelementptr %Job, ptr %job, i32 0, i32 6, i64 %which, i32 0
  %exchange = cmpxchg ptr %claimed_at, i64 0, i64 1 acq_rel acquire
  %ours = extractvalue { i64, i1 } %exchange, 1
  br i1 %ours, label %run, label %done
run:
  call void @run_range(ptr %job, i64 %which)
  %not_done_at = getelementptr %Job, ptr %job, i32 0, i32 1
  %before = atomicrmw sub ptr %not_done_at, i64 1 release
  br label %done
done:
  ret void
}

define internal void @run_range(ptr %job, i64 %which) {
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
  call void %body(ptr %data, i64 %begin, i64 %end, i64 %which)
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
