; A site of several keys, which calls one kernel behind the other.  What its words mean stands in sequence.py.

%Words = type { i64, i64, [0 x i64] }                 ; steps, the most places of one; then each step
%Step = type { i64, i64, i64, i64, i64, i64, [0 x i64] } ; length of its key, bytes of scratch and where they begin,
;                                                       stacks, arguments, results; then the places of these
%Bases = type { ptr, ptr, ptr }                       ; addresses of operands, of results; the memory that steps share

declare ptr @memcpy(ptr, ptr, i64)

define internal ptr @instantiate_sequence(ptr %frame, ptr %keys_span, ptr %words_span) {
entry:
  %length_at = getelementptr %Span, ptr %words_span, i32 0, i32 1
  %length = load i64, ptr %length_at
  %text = load ptr, ptr %words_span
  %most = add i64 %length, 1                          ; a word has a digit, and all but the last a space
  %words_bytes = mul i64 %most, 4
  %padded_bytes = add i64 %words_bytes, 7
  %read = call ptr @malloc(i64 %padded_bytes)
  %count = call i64 @read_words(ptr %text, i64 %length, ptr %read)
  %steps = load i64, ptr %read
  %slots_bytes = mul i64 %steps, 8
  %head_bytes = add i64 %slots_bytes, 88
  %used_bytes = mul i64 %count, 8
  %all_bytes = add i64 %head_bytes, %used_bytes
  %instance = call ptr @malloc(i64 %all_bytes)
  %words = getelementptr i8, ptr %instance, i64 %head_bytes
  %copied = call ptr @memcpy(ptr %words, ptr %read, i64 %used_bytes)
  call void @free(ptr %read)
  store %Instance zeroinitializer, ptr %instance
  %bytes = call i64 @number(ptr %frame, ptr @name_scratch, i64 13)
  %bytes_at = getelementptr %Instance, ptr %instance, i32 0, i32 1
  %steps_at = getelementptr %Instance, ptr %instance, i32 0, i32 4
  %words_at = getelementptr %Instance, ptr %instance, i32 0, i32 5
  store i64 %bytes, ptr %bytes_at
  %alone = call i64 @number(ptr %frame, ptr @name_alone, i64 5)
  %alone_at = getelementptr %Instance, ptr %instance, i32 0, i32 6
  store i64 %alone, ptr %alone_at
  store i64 %steps, ptr %steps_at
  store ptr %words, ptr %words_at
  %keys = load ptr, ptr %keys_span
  %slots = getelementptr %Instance, ptr %instance, i64 1
  %first = getelementptr %Words, ptr %words, i32 0, i32 2
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %known ]
  %key = phi ptr [ %keys, %entry ], [ %next_key, %known ]
  %step = phi ptr [ %first, %entry ], [ %next_step, %known ]
  %more = icmp slt i64 %i, %steps
  br i1 %more, label %look, label %done
look:
  %key_length = load i64, ptr %step
  %slot = call ptr @find(ptr %key, i64 %key_length)
  %some = icmp ne ptr %slot, null
  br i1 %some, label %known, label %unknown
known:
  %slot_at = getelementptr ptr, ptr %slots, i64 %i
  store ptr %slot, ptr %slot_at
  %next = add i64 %i, 1
  %next_key = getelementptr i8, ptr %key, i64 %key_length
  %next_step = call ptr @step_behind(ptr %step)
  br label %check
unknown:
  %not_found = call ptr @fail(ptr %frame, i32 5, ptr @not_loaded, ptr %key, i64 %key_length, i64 0, i64 0)
  call void @free(ptr %instance)
  ret ptr %not_found
done:
  %error = call ptr @keep(ptr %frame, ptr %instance)
  ret ptr %error
}

; Whole numbers as decimal digits, with a space behind each but the last; gives how many there are.
define internal i64 @read_words(ptr %text, i64 %length, ptr %words) {
entry:
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %digit ], [ %next, %space ]
  %value = phi i64 [ 0, %entry ], [ %longer, %digit ], [ 0, %space ]
  %k = phi i64 [ 0, %entry ], [ %k, %digit ], [ %following, %space ]
  %following = add i64 %k, 1
  %word_at = getelementptr i64, ptr %words, i64 %k
  %more = icmp slt i64 %i, %length
  br i1 %more, label %look, label %done
look:
  %next = add i64 %i, 1
  %letter_at = getelementptr i8, ptr %text, i64 %i
  %letter = load i8, ptr %letter_at
  %ends = icmp eq i8 %letter, 32
  br i1 %ends, label %space, label %digit
digit:
  %wide = zext i8 %letter to i64
  %units = sub i64 %wide, 48
  %tens = mul i64 %value, 10
  %longer = add i64 %tens, %units
  br label %check
space:
  store i64 %value, ptr %word_at
  br label %check
done:
  store i64 %value, ptr %word_at
  ret i64 %following
}

define internal ptr @step_behind(ptr %step) {
  %arguments_at = getelementptr %Step, ptr %step, i32 0, i32 4
  %results_at = getelementptr %Step, ptr %step, i32 0, i32 5
  %arguments = load i64, ptr %arguments_at
  %results = load i64, ptr %results_at
  %places = add i64 %arguments, %results
  %behind = getelementptr %Step, ptr %step, i32 0, i32 6, i64 %places
  ret ptr %behind
}

; Calls the kernels of a sequence one behind the other, until one fails.
define internal ptr @run_sequence(ptr %frame, ptr %instance, i64 %steps) {
entry:
  %bases = alloca %Bases
  %args_size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 2
  %args_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 4
  %args_size = load i64, ptr %args_size_at
  %args = load ptr, ptr %args_at
  %results_size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 2
  %results_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 4
  %results_size = load i64, ptr %results_size_at
  %results = load ptr, ptr %results_at
  %words_at = getelementptr %Instance, ptr %instance, i32 0, i32 5
  %words = load ptr, ptr %words_at
  %most_at = getelementptr %Words, ptr %words, i32 0, i32 1
  %most = load i64, ptr %most_at
  %arg_addresses = alloca ptr, i64 %args_size
  %result_addresses = alloca ptr, i64 %results_size
  %addresses = alloca ptr, i64 %most
  call void @gather(ptr %args, i64 %args_size, ptr %arg_addresses)
  call void @gather(ptr %results, i64 %results_size, ptr %result_addresses)
  %result_base_at = getelementptr %Bases, ptr %bases, i32 0, i32 1
  %shared_at = getelementptr %Bases, ptr %bases, i32 0, i32 2
  store ptr %arg_addresses, ptr %bases
  store ptr %result_addresses, ptr %result_base_at
  store ptr null, ptr %shared_at
  %shared_bytes_at = getelementptr %Instance, ptr %instance, i32 0, i32 1
  %shared_bytes = load i64, ptr %shared_bytes_at
  %shares = icmp sgt i64 %shared_bytes, 0
  br i1 %shares, label %take_shared, label %begin
take_shared:                                          ; the last result
  %last = add i64 %results_size, -1
  %last_at = getelementptr ptr, ptr %result_addresses, i64 %last
  %shared = load ptr, ptr %last_at
  store ptr %shared, ptr %shared_at
  br label %begin
begin:
  %alone_at = getelementptr %Instance, ptr %instance, i32 0, i32 6
  %alone = load i64, ptr %alone_at
  %is_alone = icmp ne i64 %alone, 0
  %looks = select i1 %is_alone, i64 16384, i64 2048
  call void @look_for(i64 %looks)
  %large = call i64 @bytes_above(ptr %results, i64 %results_size, i64 33554432)
  %has_large = icmp sgt i64 %large, 0
  br i1 %has_large, label %run_large, label %run_small
run_small:
  %error = call ptr @run_steps(ptr %frame, ptr %instance, i64 %steps, ptr %bases, ptr %addresses)
  ret ptr %error
run_large:                                            ; as in call_kernel
  %binding = call ptr @all_bindings(ptr %instance, i64 %steps)
  %new_pages = getelementptr %Instance, ptr %instance, i32 0, i32 7
  %asks = call i1 @asks_for_large(ptr %new_pages, ptr %binding)
  br i1 %asks, label %ask, label %run
ask:
  %advised = call i1 @ask_for_pages(ptr %results, i64 %results_size, i64 33554433, i1 true, i1 false)
  br label %run
run:
  %start = call i64 @now()
  %found = call ptr @run_steps(ptr %frame, ptr %instance, i64 %steps, ptr %bases, ptr %addresses)
  %end = call i64 @now()
  %took = sub i64 %end, %start
  %good = icmp eq ptr %found, null
  br i1 %good, label %note, label %failed
note:
  call void @note_pages(ptr %new_pages, i64 %large, i64 %took, i1 %asks)
  ret ptr null
failed:
  ret ptr %found
}

; A number for what is bound to all steps now, which is another one where one of these has changed.
define internal ptr @all_bindings(ptr %instance, i64 %steps) {
entry:
  %slots = getelementptr %Instance, ptr %instance, i64 1
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %sum = phi i64 [ 0, %entry ], [ %mixed, %look ]
  %more = icmp slt i64 %i, %steps
  br i1 %more, label %look, label %done
look:
  %next = add i64 %i, 1
  %slot_at = getelementptr ptr, ptr %slots, i64 %i
  %slot = load ptr, ptr %slot_at
  %binding_at = getelementptr %Slot, ptr %slot, i32 0, i32 1
  %binding = load atomic i64, ptr %binding_at monotonic, align 8
  %spread = mul i64 %sum, 31
  %mixed = add i64 %spread, %binding
  br label %check
done:
  %number = inttoptr i64 %sum to ptr
  ret ptr %number
}

define internal ptr @run_steps(ptr %frame, ptr %instance, i64 %steps, ptr %bases, ptr %addresses) {
begin:
  %slots = getelementptr %Instance, ptr %instance, i64 1
  %words_at = getelementptr %Instance, ptr %instance, i32 0, i32 5
  %words = load ptr, ptr %words_at
  %first = getelementptr %Words, ptr %words, i32 0, i32 2
  br label %check
check:
  %i = phi i64 [ 0, %begin ], [ %next, %good ]
  %step = phi ptr [ %first, %begin ], [ %next_step, %good ]
  %more = icmp slt i64 %i, %steps
  br i1 %more, label %run, label %done
run:
  %slot_at = getelementptr ptr, ptr %slots, i64 %i
  %slot = load ptr, ptr %slot_at
  %running_at = getelementptr %Slot, ptr %slot, i32 0, i32 2
  %binding_at = getelementptr %Slot, ptr %slot, i32 0, i32 1
  %before = atomicrmw add ptr %running_at, i64 1 seq_cst
  %binding = load atomic ptr, ptr %binding_at seq_cst, align 8
  %is_first = icmp eq i64 %i, 0
  %settles = select i1 %is_first, ptr %instance, ptr null
  %error = call ptr @run_step(ptr %frame, ptr %settles, ptr %slot, ptr %binding, ptr %step, ptr %bases, ptr %addresses)
  %after = atomicrmw sub ptr %running_at, i64 1 seq_cst
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %good, label %failed
good:
  %next = add i64 %i, 1
  %next_step = call ptr @step_behind(ptr %step)
  br label %check
failed:
  ret ptr %error
done:
  ret ptr null
}

; One kernel of a sequence; the first one moves memory for all (settle), where there is an instance.
define internal ptr @run_step(ptr %frame, ptr %instance, ptr %slot, ptr %binding, ptr %step, ptr %bases, ptr %addresses) {
  %given_at = getelementptr %Step, ptr %step, i32 0, i32 1
  %arguments_at = getelementptr %Step, ptr %step, i32 0, i32 4
  %places = getelementptr %Step, ptr %step, i32 0, i32 6
  %given = load i64, ptr %given_at
  %arguments = load i64, ptr %arguments_at
  %unfit = call ptr @check_binding(ptr %frame, ptr %slot, ptr %binding, i64 %given, ptr %places, i64 %arguments)
  %bad = icmp ne ptr %unfit, null
  br i1 %bad, label %refuse, label %settle
refuse:
  ret ptr %unfit
settle:
  %settles = icmp ne ptr %instance, null
  br i1 %settles, label %move, label %call
move:
  call void @settle(ptr %frame, ptr %instance, ptr %binding)
  br label %call
call:
  %status = call i32 @call_step(ptr %frame, ptr %binding, ptr %step, ptr %bases, ptr %addresses)
  %error = call ptr @error_of(ptr %frame, ptr %slot, i32 %status)
  ret ptr %error
}

define internal i32 @call_step(ptr %frame, ptr %binding, ptr %step, ptr %bases, ptr %addresses) {
  %call = alloca %Call
  %host = alloca %Host
  %scratch_at_at = getelementptr %Step, ptr %step, i32 0, i32 2
  %stacks_at = getelementptr %Step, ptr %step, i32 0, i32 3
  %arguments_at = getelementptr %Step, ptr %step, i32 0, i32 4
  %results_at = getelementptr %Step, ptr %step, i32 0, i32 5
  %places = getelementptr %Step, ptr %step, i32 0, i32 6
  %scratch_at = load i64, ptr %scratch_at_at
  %stacks = load i64, ptr %stacks_at
  %arguments = load i64, ptr %arguments_at
  %results = load i64, ptr %results_at
  %count = add i64 %arguments, %results
  call void @find_places(ptr %places, i64 %count, ptr %bases, ptr %addresses)
  %has_stacks = icmp ne i64 %stacks, 0
  br i1 %has_stacks, label %choose, label %go_on
choose:
  %chosen = call i1 @choose_parts(ptr %frame, ptr %binding, ptr %addresses, ptr %places, i64 %arguments)
  br i1 %chosen, label %go_on, label %no_part
no_part:
  ret i32 -2                                          ; an index beyond the parts
go_on:
  call void @fill_host(ptr %frame, ptr %binding, ptr %host)
  %result_addresses = getelementptr ptr, ptr %addresses, i64 %arguments
  %shared_at = getelementptr %Bases, ptr %bases, i32 0, i32 2
  %shared = load ptr, ptr %shared_at
  %scratch = getelementptr i8, ptr %shared, i64 %scratch_at
  %call_results_at = getelementptr %Call, ptr %call, i32 0, i32 1
  %call_scratch_at = getelementptr %Call, ptr %call, i32 0, i32 2
  %call_host_at = getelementptr %Call, ptr %call, i32 0, i32 3
  store ptr %addresses, ptr %call
  store ptr %result_addresses, ptr %call_results_at
  store ptr %scratch, ptr %call_scratch_at
  store ptr %host, ptr %call_host_at
  %kernel = load ptr, ptr %binding
  %status = call i32 %kernel(ptr %call)
  ret i32 %status
}

; The addresses of places, by what is left of each when it is divided by four (Kind): operands, results, bytes into the
; memory that steps share, and bytes into operands, in whose places the operand takes the last 16 bits.
define internal void @find_places(ptr %places, i64 %count, ptr %bases, ptr %addresses) {
entry:
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %done
look:
  %next = add i64 %i, 1
  %place_at = getelementptr i64, ptr %places, i64 %i
  %address_at = getelementptr ptr, ptr %addresses, i64 %i
  %place = load i64, ptr %place_at
  %kind = and i64 %place, 3
  %at = lshr i64 %place, 2
  switch i64 %kind, label %read_operand [ i64 1, label %read_result   i64 2, label %step_in   i64 3, label %step_into ]
read_operand:
  %operands = load ptr, ptr %bases
  %operand_at = getelementptr ptr, ptr %operands, i64 %at
  %operand = load ptr, ptr %operand_at
  br label %put
read_result:
  %results_at = getelementptr %Bases, ptr %bases, i32 0, i32 1
  %results = load ptr, ptr %results_at
  %result_at = getelementptr ptr, ptr %results, i64 %at
  %result = load ptr, ptr %result_at
  br label %put
step_in:
  %shared_at = getelementptr %Bases, ptr %bases, i32 0, i32 2
  %shared = load ptr, ptr %shared_at
  %inside = getelementptr i8, ptr %shared, i64 %at
  br label %put
step_into:
  %all = load ptr, ptr %bases
  %which = and i64 %at, 65535
  %offset = lshr i64 %at, 16
  %whole_at = getelementptr ptr, ptr %all, i64 %which
  %whole = load ptr, ptr %whole_at
  %part = getelementptr i8, ptr %whole, i64 %offset
  br label %put
put:
  %address = phi ptr [ %operand, %read_operand ], [ %result, %read_result ], [ %inside, %step_in ], [ %part, %step_into ]
  store ptr %address, ptr %address_at
  br label %check
done:
  ret void
}
