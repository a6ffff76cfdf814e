; Waits in every task until all tasks have begun, or for half a millisecond or so: afterwards no thread sleeps.  A task
; that waited in vain says so: its thread then takes the tasks of those that did not come.

%Call = type { ptr, ptr, ptr, ptr }                   ; args, results, scratch, host
%Host = type { ptr, i32, ptr }                        ; parallel_for, threads

define void @task(ptr %call, i64 %begin, i64 %end, i64 %slot) {
entry:
  %results.at = getelementptr %Call, ptr %call, i64 0, i32 1
  %results = load ptr, ptr %results.at
  %begun.at = load ptr, ptr %results
  %own = sub i64 %end, %begin
  %before = atomicrmw add ptr %begun.at, i64 %own seq_cst
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %begun = load atomic volatile i64, ptr %begun.at seq_cst, align 8
  %missing = icmp slt i64 %begun, ${threads}
  %k.next = add i64 %k, 1
  %early = icmp slt i64 %k, ${looks}
  %again = and i1 %missing, %early
  br i1 %again, label %look, label %stop
stop:
  br i1 %missing, label %alone, label %done
alone:
  %alone.at = getelementptr i64, ptr %begun.at, i64 1
  store atomic i64 1, ptr %alone.at seq_cst, align 8
  br label %done
done:
  ret void
}

define i32 @kernel(ptr %call) {
  %host.at = getelementptr %Call, ptr %call, i64 0, i32 3
  %host = load ptr, ptr %host.at
  %parallel = load ptr, ptr %host
  call void %parallel(ptr %host, i64 ${threads}, ptr @task, ptr %call)
  ret i32 0
}
