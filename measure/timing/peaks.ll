; Measures of a machine, one module a measure: peaks.py puts numbers and vector types in the place of names in braces.
; Each is a kernel of the ABI: a parallel loop over the threads of the host, which repeat a body.

%Call = type { ptr, ptr, ptr, ptr }                   ; args, results, scratch, host
%Host = type { ptr, i32, ptr }                        ; parallel_for, threads

${declarations}

define void @task(ptr %call, i64 %begin, i64 %end, i64 %slot) {
entry:
  %args.at = getelementptr %Call, ptr %call, i64 0, i32 0
  %args = load ptr, ptr %args.at
  %results.at = getelementptr %Call, ptr %call, i64 0, i32 1
  %results = load ptr, ptr %results.at
  %in = load ptr, ptr %args
  %out = load ptr, ptr %results
${before}
  br label %tasks
tasks:
  %task = phi i64 [ %begin, %entry ], [ %task.next, %task.done ]
  %source.offset = mul i64 %task, ${task_bytes}
  %source = getelementptr i8, ptr %in, i64 %source.offset
  br label %loop
loop:
  %trip = phi i64 [ 0, %tasks ], [ %trip.next, %loop ]
${phis}
${body}
  %trip.next = add i64 %trip, 1
  %more = icmp slt i64 %trip.next, ${trips}
  br i1 %more, label %loop, label %task.done
task.done:
  %sink.offset = mul i64 %task, ${sink_bytes}
  %sink = getelementptr i8, ptr %out, i64 %sink.offset
${after}
  %task.next = add i64 %task, 1
  %again = icmp slt i64 %task.next, %end
  br i1 %again, label %tasks, label %done
done:
${end}
  ret void
}

define i32 @kernel(ptr %call) {
  %host.at = getelementptr %Call, ptr %call, i64 0, i32 3
  %host = load ptr, ptr %host.at
  %parallel.at = getelementptr %Host, ptr %host, i64 0, i32 0
  %parallel = load ptr, ptr %parallel.at
  call void %parallel(ptr %host, i64 ${tasks}, ptr @task, ptr %call)
  ret i32 0
}
