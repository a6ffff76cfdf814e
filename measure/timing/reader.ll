; Reads one byte of every cache line of its arguments, all of them in every task: afterwards all processors share
; these lines, as they do with a buffer that a network has just read.  The loads are volatile: they are the result.

%Call = type { ptr, ptr, ptr, ptr }                   ; args, results, scratch, host
%Host = type { ptr, i32, ptr }                        ; parallel_for, threads

@bytes = internal constant [${count} x i64] [${bytes}]

define void @task(ptr %call, i64 %begin, i64 %end, i64 %slot) {
entry:
  %args = load ptr, ptr %call
  br label %arguments
arguments:
  %k = phi i64 [ 0, %entry ], [ %k.next, %argument.done ]
  %size.at = getelementptr i64, ptr @bytes, i64 %k
  %size = load i64, ptr %size.at
  %data.at = getelementptr ptr, ptr %args, i64 %k
  %data = load ptr, ptr %data.at
  br label %lines
lines:
  %offset = phi i64 [ 0, %arguments ], [ %offset.next, %lines ]
  %line = getelementptr i8, ptr %data, i64 %offset
  %value = load volatile i8, ptr %line
  %offset.next = add i64 %offset, 64
  %more = icmp slt i64 %offset.next, %size
  br i1 %more, label %lines, label %argument.done
argument.done:
  %k.next = add i64 %k, 1
  %again = icmp slt i64 %k.next, ${count}
  br i1 %again, label %arguments, label %done
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
