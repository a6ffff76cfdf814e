; The one custom call that XLA makes: `hlotune_call`, a typed-FFI handler of two stages.
;
; Instantiate, once for each call site when a program is loaded, finds the slot of the site's key and keeps it as the
; site's state.  Execute gathers the addresses of operands and results, and calls what is bound to the slot.  A site may
; have several keys: then it calls what is bound to each, one behind the other (sequence.py says how they are written).
; Structs and numbers are those of xla/ffi/api/c_api.h, API 0.3; a test compares them with the header.

; ---- XLA's structs (all begin with their size and a list of extensions)

%CallFrame = type { i64, ptr, ptr, ptr, i32, %Buffers, %Buffers, %Attributes, ptr } ; api, ctx, stage, args, rets, attrs
%Buffers = type { i64, ptr, i64, ptr, ptr }                                         ; size, types, buffers
%Attributes = type { i64, ptr, i64, ptr, ptr, ptr }                                 ; size, types, names, values
%Buffer = type { i64, ptr, i32, ptr, i64, ptr }                                     ; dtype, data, rank, dims
%Span = type { ptr, i64 }                                                           ; bytes, length
%Scalar = type { i32, ptr }                                                         ; dtype, value
%Extension = type { i64, i32, ptr, ptr }                                            ; type, next, metadata
%Version = type { i64, ptr, i32, i32 }                                              ; major, minor
%Metadata = type { i64, %Version, i32 }                                             ; version, traits
%Api = type { i64, ptr, %Version, ptr, [18 x ptr] }                                 ; version, internal, functions
; functions: 0 Error_Create, 2 Error_Destroy, 7 State_Set, 8 State_Get, 12 ThreadPool_NumThreads
%ErrorCreate = type { i64, ptr, ptr, i32 }                                          ; message, code
%ErrorDestroy = type { i64, ptr, ptr }                                              ; error
%State = type { i64, ptr, ptr, i32, ptr, ptr }                                      ; ctx, stage, type id, state
%NumThreads = type { i64, ptr, ptr, ptr }                                           ; ctx, where to write
%TypeInfo = type { i64, ptr, ptr }                                                  ; deleter

; ---- ours (Slot, Binding and Packed are laid out by dispatcher.py)

%Slot = type { ptr, ptr, i64, ptr, i64 }              ; next slot, binding, calls running now, key, its length
%Binding = type { ptr, i64, i64, ptr, i64, i64 }      ; kernel, threads, scratch bytes, packed arguments, count, moves
%Packed = type { i64, i64 }                           ; argument, bytes
; slot, bytes of the scratch result (0: there is none), stacks, calls, steps (0: one kernel, of the slot), their words,
; whether XLA has next to nothing to compute in the program, what new pages cost (new_pages.ll); behind it lie a slot for
; each step, and the words
%Instance = type { ptr, i64, i64, i64, i64, ptr, i64, %NewPages }
; Where `moves` is not 0, early calls move memory (settle).
; Where `stacks` is not 0, packed arguments may have several parts, and the last operands are i64: for each packed
; argument, in their order, which part the call reads.
%Call = type { ptr, ptr, ptr, ptr }                   ; args, results, scratch, host
%Host = type { ptr, i32, ptr }                        ; parallel_for, threads, crew

@slots = internal global ptr null                     ; list of all slots; they are never freed
@hlotune_state_type = global i64 0                    ; XLA writes the id of our state's type here
@hlotune_state_info = global %TypeInfo { i64 24, ptr null, ptr @free }

@name_key = internal constant [3 x i8] c"key"
@name_keys = internal constant [4 x i8] c"keys"
@name_words = internal constant [5 x i8] c"words"
@name_alone = internal constant [5 x i8] c"alone"
@name_scratch = internal constant [13 x i8] c"scratch_bytes"
@name_stacks = internal constant [6 x i8] c"stacks"
; dispatcher.py adds the messages @no_key ... @bad_status, @pause, @processor and @now, moved_pages.py
; the numbers of settle and @large_pages; and there are sequence.ll, pool.ll and new_pages.ll

declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @snprintf(ptr, i64, ptr, ...)

; ---- the handshake: XLA asks each handler once for the version of the API it was made for

define internal i1 @handshake(ptr %frame) {           ; true: this was the question, now answered
  %extension_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 1
  %extension = load ptr, ptr %extension_at
  %some = icmp ne ptr %extension, null
  br i1 %some, label %look, label %no
look:
  %type_at = getelementptr %Extension, ptr %extension, i32 0, i32 1
  %type = load i32, ptr %type_at
  %asks = icmp eq i32 %type, 1                        ; XLA_FFI_Extension_Metadata
  br i1 %asks, label %answer, label %no
answer:
  %metadata_at = getelementptr %Extension, ptr %extension, i32 0, i32 3
  %metadata = load ptr, ptr %metadata_at
  %major_at = getelementptr %Metadata, ptr %metadata, i32 0, i32 1, i32 2
  %minor_at = getelementptr %Metadata, ptr %metadata, i32 0, i32 1, i32 3
  %traits_at = getelementptr %Metadata, ptr %metadata, i32 0, i32 2
  store i32 0, ptr %major_at
  store i32 3, ptr %minor_at
  store i32 0, ptr %traits_at
  ret i1 true
no:
  ret i1 false
}

; ---- calls into XLA

define internal ptr @function(ptr %frame, i64 %which) {
  %api_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %api_at
  %function = call ptr @api_function(ptr %api, i64 %which)
  ret ptr %function
}

define internal ptr @api_function(ptr %api, i64 %which) {
  %function_at = getelementptr %Api, ptr %api, i32 0, i32 4, i64 %which
  %function = load ptr, ptr %function_at
  ret ptr %function
}

define internal ptr @context(ptr %frame) {
  %context_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 3
  %context = load ptr, ptr %context_at
  ret ptr %context
}

; An error of XLA: the format gets the key, then two numbers.
define internal ptr @fail(ptr %frame, i32 %code, ptr %format, ptr %key, i64 %length, i64 %first, i64 %second) {
  %message = alloca [1024 x i8]
  %arguments = alloca %ErrorCreate
  %precision = trunc i64 %length to i32
  %n = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %message, i64 1024, ptr %format,
                                               i32 %precision, ptr %key, i64 %first, i64 %second)
  %message_at = getelementptr %ErrorCreate, ptr %arguments, i32 0, i32 2
  %code_at = getelementptr %ErrorCreate, ptr %arguments, i32 0, i32 3
  store %ErrorCreate { i64 28, ptr null, ptr null, i32 0 }, ptr %arguments
  store ptr %message, ptr %message_at
  store i32 %code, ptr %code_at
  %create = call ptr @function(ptr %frame, i64 0)
  %error = call ptr %create(ptr %arguments)
  ret ptr %error
}

define internal ptr @fail_slot(ptr %frame, i32 %code, ptr %format, ptr %slot, i64 %first, i64 %second) {
  %key_at = getelementptr %Slot, ptr %slot, i32 0, i32 3
  %length_at = getelementptr %Slot, ptr %slot, i32 0, i32 4
  %key = load ptr, ptr %key_at
  %length = load i64, ptr %length_at
  %error = call ptr @fail(ptr %frame, i32 %code, ptr %format, ptr %key, i64 %length, i64 %first, i64 %second)
  ret ptr %error
}

define internal void @discard(ptr %api, ptr %error) {
  %arguments = alloca %ErrorDestroy
  store %ErrorDestroy { i64 24, ptr null, ptr null }, ptr %arguments
  %error_at = getelementptr %ErrorDestroy, ptr %arguments, i32 0, i32 2
  store ptr %error, ptr %error_at
  %destroy = call ptr @api_function(ptr %api, i64 2)
  call void %destroy(ptr %arguments)
  ret void
}

; ---- slots

define void @hlotune_link(ptr %slot) {                ; adds to the list; callers take turns
  %first = load ptr, ptr @slots
  store ptr %first, ptr %slot
  store atomic ptr %slot, ptr @slots release, align 8
  ret void
}

; Binds, and returns how many calls of the slot run now.  When none does, none can still use what was bound before:
; a call announces itself before it reads the binding.
define i64 @hlotune_swap(ptr %slot, ptr %binding) {
  %binding_at = getelementptr %Slot, ptr %slot, i32 0, i32 1
  %running_at = getelementptr %Slot, ptr %slot, i32 0, i32 2
  %old = atomicrmw xchg ptr %binding_at, ptr %binding seq_cst
  %running = load atomic i64, ptr %running_at seq_cst, align 8
  ret i64 %running
}

define internal ptr @find(ptr %key, i64 %length) {    ; the slot, or null
entry:
  %first = load atomic ptr, ptr @slots acquire, align 8
  br label %check
check:
  %slot = phi ptr [ %first, %entry ], [ %next, %other ], [ %next_same, %compare ]
  %some = icmp ne ptr %slot, null
  br i1 %some, label %look, label %found
look:
  %length_at = getelementptr %Slot, ptr %slot, i32 0, i32 4
  %its_length = load i64, ptr %length_at
  %as_long = icmp eq i64 %its_length, %length
  br i1 %as_long, label %compare, label %other
compare:
  %key_at = getelementptr %Slot, ptr %slot, i32 0, i32 3
  %its_key = load ptr, ptr %key_at
  %differs = call i32 @memcmp(ptr %its_key, ptr %key, i64 %length)
  %next_same = load ptr, ptr %slot
  %same = icmp eq i32 %differs, 0
  br i1 %same, label %found, label %check
other:
  %next = load ptr, ptr %slot
  br label %check
found:
  ret ptr %slot
}

define i32 @hlotune_empty(ptr %call) {                ; the kernel that does nothing: what a call costs
  ret i32 0
}

; ---- instantiate

; The value of a call's attribute, or null where there is none of this name and type.
define internal ptr @attribute(ptr %frame, ptr %name, i64 %length, i32 %type) {
entry:
  %size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 7, i32 2
  %types_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 7, i32 3
  %names_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 7, i32 4
  %values_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 7, i32 5
  %size = load i64, ptr %size_at
  %types = load ptr, ptr %types_at
  %names = load ptr, ptr %names_at
  %values = load ptr, ptr %values_at
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %look, label %none
look:
  %span_at = getelementptr ptr, ptr %names, i64 %i
  %span = load ptr, ptr %span_at
  %text = load ptr, ptr %span
  %its_length_at = getelementptr %Span, ptr %span, i32 0, i32 1
  %its_length = load i64, ptr %its_length_at
  %its_type_at = getelementptr i32, ptr %types, i64 %i
  %its_type = load i32, ptr %its_type_at
  %as_long = icmp eq i64 %its_length, %length
  %of_type = icmp eq i32 %its_type, %type
  %fits = and i1 %as_long, %of_type
  br i1 %fits, label %compare, label %again
compare:
  %differs = call i32 @memcmp(ptr %text, ptr %name, i64 %length)
  %same = icmp eq i32 %differs, 0
  br i1 %same, label %found, label %again
again:
  %next = add i64 %i, 1
  br label %check
found:
  %value_at = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %value_at
  ret ptr %value
none:
  ret ptr null
}

define internal i64 @number(ptr %frame, ptr %name, i64 %length) { ; the value of an i64, or 0 where there is none
  %scalar = call ptr @attribute(ptr %frame, ptr %name, i64 %length, i32 3)     ; XLA_FFI_AttrType_SCALAR
  %some = icmp ne ptr %scalar, null
  br i1 %some, label %read, label %none
read:
  %value_at = getelementptr %Scalar, ptr %scalar, i32 0, i32 1
  %value = load ptr, ptr %value_at
  %number = load i64, ptr %value
  ret i64 %number
none:
  ret i64 0
}

define internal ptr @keep(ptr %frame, ptr %instance) { ; makes the instance the state of this call site
  %arguments = alloca %State
  %context = call ptr @context(ptr %frame)
  store %State { i64 48, ptr null, ptr null, i32 0, ptr @hlotune_state_type, ptr null }, ptr %arguments
  %context_at = getelementptr %State, ptr %arguments, i32 0, i32 2
  %state_at = getelementptr %State, ptr %arguments, i32 0, i32 5
  store ptr %context, ptr %context_at
  store ptr %instance, ptr %state_at
  %set = call ptr @function(ptr %frame, i64 7)
  %error = call ptr %set(ptr %arguments)
  ret ptr %error
}

define ptr @hlotune_instantiate(ptr %frame) {
  %asked = call i1 @handshake(ptr %frame)
  br i1 %asked, label %answered, label %begin
answered:
  ret ptr null
begin:
  %span = call ptr @attribute(ptr %frame, ptr @name_key, i64 3, i32 4)         ; XLA_FFI_AttrType_STRING
  %some = icmp ne ptr %span, null
  br i1 %some, label %resolve, label %look_for_several
look_for_several:
  %keys = call ptr @attribute(ptr %frame, ptr @name_keys, i64 4, i32 4)
  %words = call ptr @attribute(ptr %frame, ptr @name_words, i64 5, i32 4)
  %some_keys = icmp ne ptr %keys, null
  %some_words = icmp ne ptr %words, null
  %several = and i1 %some_keys, %some_words
  br i1 %several, label %make_sequence, label %no_key
make_sequence:
  %sequence_error = call ptr @instantiate_sequence(ptr %frame, ptr %keys, ptr %words)
  ret ptr %sequence_error
no_key:
  %invalid = call ptr @fail(ptr %frame, i32 3, ptr @no_key, ptr null, i64 0, i64 0, i64 0)
  ret ptr %invalid
resolve:
  %key = load ptr, ptr %span
  %length_at = getelementptr %Span, ptr %span, i32 0, i32 1
  %length = load i64, ptr %length_at
  %slot = call ptr @find(ptr %key, i64 %length)
  %known = icmp ne ptr %slot, null
  br i1 %known, label %make, label %unknown
unknown:
  %not_found = call ptr @fail(ptr %frame, i32 5, ptr @not_loaded, ptr %key, i64 %length, i64 0, i64 0)
  ret ptr %not_found
make:
  %bytes = call i64 @number(ptr %frame, ptr @name_scratch, i64 13)
  %stacks = call i64 @number(ptr %frame, ptr @name_stacks, i64 6)
  %instance = call ptr @malloc(i64 88)                 ; XLA frees it with the program: hlotune_state_info
  store %Instance zeroinitializer, ptr %instance
  store ptr %slot, ptr %instance
  %bytes_at = getelementptr %Instance, ptr %instance, i32 0, i32 1
  store i64 %bytes, ptr %bytes_at
  %stacks_at = getelementptr %Instance, ptr %instance, i32 0, i32 2
  store i64 %stacks, ptr %stacks_at
  %error = call ptr @keep(ptr %frame, ptr %instance)
  ret ptr %error
}

; ---- execute

define ptr @hlotune_execute(ptr %frame) {
  %asked = call i1 @handshake(ptr %frame)
  br i1 %asked, label %answered, label %begin
answered:
  ret ptr null
begin:
  %arguments = alloca %State
  %context = call ptr @context(ptr %frame)
  store %State { i64 48, ptr null, ptr null, i32 0, ptr @hlotune_state_type, ptr null }, ptr %arguments
  %context_at = getelementptr %State, ptr %arguments, i32 0, i32 2
  store ptr %context, ptr %context_at
  %get = call ptr @function(ptr %frame, i64 8)
  %failed = call ptr %get(ptr %arguments)
  %bad = icmp ne ptr %failed, null
  br i1 %bad, label %no_state, label %run
no_state:
  ret ptr %failed
run:
  %instance_at = getelementptr %State, ptr %arguments, i32 0, i32 5
  %instance = load ptr, ptr %instance_at
  %steps_at = getelementptr %Instance, ptr %instance, i32 0, i32 4
  %steps = load i64, ptr %steps_at
  %several = icmp ne i64 %steps, 0
  br i1 %several, label %run_several, label %run_one
run_several:
  %sequence_error = call ptr @run_sequence(ptr %frame, ptr %instance, i64 %steps)
  ret ptr %sequence_error
run_one:
  %slot = load ptr, ptr %instance
  %running_at = getelementptr %Slot, ptr %slot, i32 0, i32 2
  %binding_at = getelementptr %Slot, ptr %slot, i32 0, i32 1
  %before = atomicrmw add ptr %running_at, i64 1 seq_cst
  %binding = load atomic ptr, ptr %binding_at seq_cst, align 8
  call void @look_for(i64 2048)
  %error = call ptr @run_binding(ptr %frame, ptr %instance, ptr %slot, ptr %binding)
  %after = atomicrmw sub ptr %running_at, i64 1 seq_cst
  ret ptr %error
}

define internal ptr @run_binding(ptr %frame, ptr %instance, ptr %slot, ptr %binding) {
  %given_at = getelementptr %Instance, ptr %instance, i32 0, i32 1
  %given = load i64, ptr %given_at
  %args_size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 2
  %args_size = load i64, ptr %args_size_at
  %unfit = call ptr @check_binding(ptr %frame, ptr %slot, ptr %binding, i64 %given, ptr null, i64 %args_size)
  %bad = icmp ne ptr %unfit, null
  br i1 %bad, label %refuse, label %call
refuse:
  ret ptr %unfit
call:
  call void @settle(ptr %frame, ptr %instance, ptr %binding)
  %stacks_at = getelementptr %Instance, ptr %instance, i32 0, i32 2
  %stacks = load i64, ptr %stacks_at
  %new_pages = getelementptr %Instance, ptr %instance, i32 0, i32 7
  %status = call i32 @call_kernel(ptr %frame, ptr %binding, i64 %given, i64 %stacks, ptr %new_pages)
  %error = call ptr @error_of(ptr %frame, ptr %slot, i32 %status)
  ret ptr %error
}

; An error where nothing is bound, or what is bound needs more than a call gives it.
define internal ptr @check_binding(ptr %frame, ptr %slot, ptr %binding, i64 %given, ptr %places, i64 %arguments) {
  %bound = icmp ne ptr %binding, null
  br i1 %bound, label %check_scratch, label %unbound
unbound:
  %precondition = call ptr @fail_slot(ptr %frame, i32 9, ptr @not_bound, ptr %slot, i64 0, i64 0)
  ret ptr %precondition
check_scratch:
  %needed_at = getelementptr %Binding, ptr %binding, i32 0, i32 2
  %needed = load i64, ptr %needed_at
  %enough = icmp sge i64 %given, %needed
  br i1 %enough, label %check_packed, label %too_few
too_few:
  %few = call ptr @fail_slot(ptr %frame, i32 9, ptr @few_scratch, ptr %slot, i64 %needed, i64 %given)
  ret ptr %few
check_packed:
  %error = call ptr @check_packed(ptr %frame, ptr %slot, ptr %binding, ptr %places, i64 %arguments)
  ret ptr %error
}

define internal ptr @error_of(ptr %frame, ptr %slot, i32 %status) {
  %good = icmp eq i32 %status, 0
  br i1 %good, label %done, label %failed
failed:
  %wide = sext i32 %status to i64
  %internal = call ptr @fail_slot(ptr %frame, i32 13, ptr @bad_status, ptr %slot, i64 %wide, i64 0)
  ret ptr %internal
done:
  ret ptr null
}

; The operand that an argument of a kernel is, or lies in: of the same number where there are no places; -1 where it is
; none.
define internal i64 @operand(ptr %places, i64 %arguments, i64 %argument) {
  %is_one = icmp ult i64 %argument, %arguments
  br i1 %is_one, label %look, label %none
look:
  %direct = icmp eq ptr %places, null
  br i1 %direct, label %same, label %find
same:
  ret i64 %argument
find:
  %place_at = getelementptr i64, ptr %places, i64 %argument
  %place = load i64, ptr %place_at
  %kind = and i64 %place, 3
  %at = lshr i64 %place, 2
  switch i64 %kind, label %none [ i64 0, label %found   i64 3, label %found_part ]
found:
  ret i64 %at
found_part:
  %which = and i64 %at, 65535
  ret i64 %which
none:
  ret i64 -1
}

define internal i64 @offset(ptr %places, i64 %argument) { ; in bytes, of such an argument in its operand
  %direct = icmp eq ptr %places, null
  br i1 %direct, label %whole, label %look
look:
  %place_at = getelementptr i64, ptr %places, i64 %argument
  %place = load i64, ptr %place_at
  %kind = and i64 %place, 3
  %is_part = icmp eq i64 %kind, 3
  %offset = lshr i64 %place, 18
  br i1 %is_part, label %part, label %whole
part:
  ret i64 %offset
whole:
  ret i64 0
}

; Whether an argument of a kernel is the bytes of an operand from its place on, and at least so many.
define internal i1 @argument_holds(ptr %frame, ptr %places, i64 %arguments, i64 %argument, i64 %bytes) {
  %operand = call i64 @operand(ptr %places, i64 %arguments, i64 %argument)
  %is_one = icmp sge i64 %operand, 0
  br i1 %is_one, label %look, label %no
look:
  %offset = call i64 @offset(ptr %places, i64 %argument)
  %end = add i64 %offset, %bytes
  %holds = call i1 @holds(ptr %frame, i64 %operand, i64 %end)
  ret i1 %holds
no:
  ret i1 false
}

; The second call of a site and the two behind it move large results and arguments into large pages.  What is called
; again and again finds them there: arguments stay where they are, and results lie where earlier ones were.  Calls of a
; binding that does not move are not counted, and after a refusal nothing is tried again.
define internal void @settle(ptr %frame, ptr %instance, ptr %binding) {
  %moves_at = getelementptr %Binding, ptr %binding, i32 0, i32 5
  %moves = load i64, ptr %moves_at
  %counts = icmp ne i64 %moves, 0
  br i1 %counts, label %look, label %done
look:
  %last = load i64, ptr @moving_calls
  %calls_at = getelementptr %Instance, ptr %instance, i32 0, i32 3
  %calls = load atomic i64, ptr %calls_at monotonic, align 8
  %early = icmp slt i64 %calls, %last
  br i1 %early, label %count, label %done
count:
  %before = atomicrmw add ptr %calls_at, i64 1 monotonic
  %again = icmp sgt i64 %before, 0
  br i1 %again, label %move, label %done
move:
  %results_size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 2
  %results_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 4
  %results_size = load i64, ptr %results_size_at
  %results = load ptr, ptr %results_at
  %args_size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 2
  %args_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 4
  %args_size = load i64, ptr %args_size_at
  %args = load ptr, ptr %args_at
  %results_bytes = call i64 @bytes_above(ptr %results, i64 %results_size, i64 0)
  %args_bytes = call i64 @bytes_above(ptr %args, i64 %args_size, i64 0)
  %sum = add i64 %results_bytes, %args_bytes
  %many = load i64, ptr @many_bytes
  %is_many = icmp sge i64 %sum, %many
  %least_at = select i1 %is_many, ptr @least_moved_of_many, ptr @least_moved
  %least = load i64, ptr %least_at
  %results_moved = call i1 @ask_for_pages(ptr %results, i64 %results_size, i64 %least, i1 true, i1 true)
  br i1 %results_moved, label %move_arguments, label %stop
move_arguments:
  %args_moved = call i1 @ask_for_pages(ptr %args, i64 %args_size, i64 %least, i1 false, i1 true)
  br i1 %args_moved, label %done, label %stop
stop:
  store atomic i64 %last, ptr %calls_at monotonic, align 8
  br label %done
done:
  ret void
}

; A kernel that reads an argument in packed form must get it so: bytes, and as many as it reads.
define internal ptr @check_packed(ptr %frame, ptr %slot, ptr %binding, ptr %places, i64 %arguments) {
entry:
  %packed_at = getelementptr %Binding, ptr %binding, i32 0, i32 3
  %count_at = getelementptr %Binding, ptr %binding, i32 0, i32 4
  %packed = load ptr, ptr %packed_at
  %count = load i64, ptr %count_at
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %fine
look:
  %argument_at = getelementptr %Packed, ptr %packed, i64 %i, i32 0
  %bytes_at = getelementptr %Packed, ptr %packed, i64 %i, i32 1
  %argument = load i64, ptr %argument_at
  %bytes = load i64, ptr %bytes_at
  %good = call i1 @argument_holds(ptr %frame, ptr %places, i64 %arguments, i64 %argument, i64 %bytes)
  %next = add i64 %i, 1
  br i1 %good, label %check, label %bad
bad:
  %error = call ptr @fail_slot(ptr %frame, i32 9, ptr @not_packed, ptr %slot, i64 %argument, i64 %bytes)
  ret ptr %error
fine:
  ret ptr null
}

define internal i1 @holds(ptr %frame, i64 %operand, i64 %bytes) { ; is it a ui8 vector of so many bytes
  %size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 2
  %size = load i64, ptr %size_at
  %given = icmp ult i64 %operand, %size
  br i1 %given, label %check_type, label %no
check_type:
  %buffers_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 4
  %buffers = load ptr, ptr %buffers_at
  %buffer_at = getelementptr ptr, ptr %buffers, i64 %operand
  %buffer = load ptr, ptr %buffer_at
  %dtype_at = getelementptr %Buffer, ptr %buffer, i32 0, i32 2
  %rank_at = getelementptr %Buffer, ptr %buffer, i32 0, i32 4
  %dtype = load i32, ptr %dtype_at
  %rank = load i64, ptr %rank_at
  %is_u8 = icmp eq i32 %dtype, 6                      ; XLA_FFI_DataType_U8
  %is_vector = icmp eq i64 %rank, 1
  %is_bytes = and i1 %is_u8, %is_vector
  br i1 %is_bytes, label %check_size, label %no
check_size:
  %dims_at = getelementptr %Buffer, ptr %buffer, i32 0, i32 5
  %dims = load ptr, ptr %dims_at
  %length = load i64, ptr %dims
  %enough = icmp sge i64 %length, %bytes
  ret i1 %enough
no:
  ret i1 false
}

define internal void @gather(ptr %buffers, i64 %size, ptr %addresses) {
entry:
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %copy ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %copy, label %done
copy:
  %buffer_at = getelementptr ptr, ptr %buffers, i64 %i
  %buffer = load ptr, ptr %buffer_at
  %data_at = getelementptr %Buffer, ptr %buffer, i32 0, i32 3
  %data = load ptr, ptr %data_at
  %address_at = getelementptr ptr, ptr %addresses, i64 %i
  store ptr %data, ptr %address_at
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}

; Asks for large pages for each array of at least so many bytes: by advice if they are ours, and, if it is told to, by
; moving there what lies in small ones; it ends, and is false, where that is refused.  Results of 256 MiB and more, and
; those above 64 MiB that a thread of XLA's takes (32 MiB with an older glibc), are new memory of the system in each
; call: in large pages it costs fewer faults, as long as new_pages.ll finds no other.
define internal i1 @ask_for_pages(ptr %buffers, i64 %size, i64 %least, i1 %are_ours, i1 %moves) {
entry:
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %look ], [ %next, %ask ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %look, label %done
look:
  %next = add i64 %i, 1
  %buffer_at = getelementptr ptr, ptr %buffers, i64 %i
  %buffer = load ptr, ptr %buffer_at
  %bytes = call i64 @bytes_of(ptr %buffer)
  %large = icmp sge i64 %bytes, %least
  br i1 %large, label %ask, label %check
ask:
  %data_at = getelementptr %Buffer, ptr %buffer, i32 0, i32 3
  %data = load i64, ptr %data_at
  %fine = call i1 @large_pages(i64 %data, i64 %bytes, i1 %are_ours, i1 %moves)
  br i1 %fine, label %check, label %refused
done:
  ret i1 true
refused:
  ret i1 false
}

; The bytes of the arrays that have more than so many each.
define internal i64 @bytes_above(ptr %buffers, i64 %size, i64 %least) {
entry:
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %sum = phi i64 [ 0, %entry ], [ %added, %look ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %look, label %done
look:
  %next = add i64 %i, 1
  %buffer_at = getelementptr ptr, ptr %buffers, i64 %i
  %buffer = load ptr, ptr %buffer_at
  %bytes = call i64 @bytes_of(ptr %buffer)
  %large = icmp sgt i64 %bytes, %least
  %counted = select i1 %large, i64 %bytes, i64 0
  %added = add i64 %sum, %counted
  br label %check
done:
  ret i64 %sum
}

define internal i64 @bytes_of(ptr %buffer) {           ; of an array; of types unknown here at least
entry:
  %dtype_at = getelementptr %Buffer, ptr %buffer, i32 0, i32 2
  %rank_at = getelementptr %Buffer, ptr %buffer, i32 0, i32 4
  %dims_at = getelementptr %Buffer, ptr %buffer, i32 0, i32 5
  %dtype = load i32, ptr %dtype_at
  %rank = load i64, ptr %rank_at
  %dims = load ptr, ptr %dims_at
  switch i32 %dtype, label %begin [                    ; XLA_FFI_DataType
    i32 3, label %two   i32 7, label %two   i32 10, label %two   i32 16, label %two
    i32 4, label %four  i32 8, label %four  i32 11, label %four
    i32 5, label %eight i32 9, label %eight i32 12, label %eight
  ]
two:
  br label %begin
four:
  br label %begin
eight:
  br label %begin
begin:
  %width = phi i64 [ 1, %entry ], [ 2, %two ], [ 4, %four ], [ 8, %eight ]
  br label %check
check:
  %i = phi i64 [ 0, %begin ], [ %next, %look ]
  %bytes = phi i64 [ %width, %begin ], [ %product, %look ]
  %more = icmp slt i64 %i, %rank
  br i1 %more, label %look, label %done
look:
  %next = add i64 %i, 1
  %dim_at = getelementptr i64, ptr %dims, i64 %i
  %dim = load i64, ptr %dim_at
  %product = mul i64 %bytes, %dim
  br label %check
done:
  ret i64 %bytes
}

; Moves the addresses of packed arguments to the parts that the last operands name; false where one is not there.
define internal i1 @choose_parts(ptr %frame, ptr %binding, ptr %addresses, ptr %places, i64 %arguments) {
entry:
  %size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 2
  %buffers_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 4
  %size = load i64, ptr %size_at
  %buffers = load ptr, ptr %buffers_at
  %packed_at = getelementptr %Binding, ptr %binding, i32 0, i32 3
  %count_at = getelementptr %Binding, ptr %binding, i32 0, i32 4
  %packed = load ptr, ptr %packed_at
  %count = load i64, ptr %count_at
  %first = sub i64 %arguments, %count
  %enough = icmp sge i64 %first, 0
  br i1 %enough, label %check, label %no
check:
  %i = phi i64 [ 0, %entry ], [ %next, %move ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %next = add i64 %i, 1
  %position = add i64 %first, %i
  %place = call i64 @operand(ptr %places, i64 %arguments, i64 %position)
  %is_operand = icmp ult i64 %place, %size
  br i1 %is_operand, label %look_at_type, label %no
look_at_type:
  %index_buffer_at = getelementptr ptr, ptr %buffers, i64 %place
  %index_buffer = load ptr, ptr %index_buffer_at
  %dtype_at = getelementptr %Buffer, ptr %index_buffer, i32 0, i32 2
  %dtype = load i32, ptr %dtype_at
  %is_i64 = icmp eq i32 %dtype, 5                      ; XLA_FFI_DataType_S64
  br i1 %is_i64, label %read, label %no
read:
  %index_at_at = getelementptr %Buffer, ptr %index_buffer, i32 0, i32 3
  %index_at = load ptr, ptr %index_at_at
  %index = load i64, ptr %index_at
  %argument_at = getelementptr %Packed, ptr %packed, i64 %i, i32 0
  %bytes_at = getelementptr %Packed, ptr %packed, i64 %i, i32 1
  %argument = load i64, ptr %argument_at
  %bytes = load i64, ptr %bytes_at
  %padded = add i64 %bytes, 63
  %step = and i64 %padded, -64
  %offset = mul i64 %index, %step
  %end = add i64 %offset, %bytes
  %not_below = icmp sge i64 %index, 0
  %holds = call i1 @argument_holds(ptr %frame, ptr %places, i64 %arguments, i64 %argument, i64 %end)
  %there = and i1 %not_below, %holds
  br i1 %there, label %move, label %no
move:
  %address_at = getelementptr ptr, ptr %addresses, i64 %argument
  %address = load ptr, ptr %address_at
  %part = getelementptr i8, ptr %address, i64 %offset
  store ptr %part, ptr %address_at
  br label %check
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i32 @call_kernel(ptr %frame, ptr %binding, i64 %scratch_bytes, i64 %stacks, ptr %new_pages) {
  %args_size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 2
  %args_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 4
  %args_size = load i64, ptr %args_size_at
  %args = load ptr, ptr %args_at
  %results_size_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 2
  %results_at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 4
  %results_size = load i64, ptr %results_size_at
  %results = load ptr, ptr %results_at
  %arg_addresses = alloca ptr, i64 %args_size
  call void @gather(ptr %args, i64 %args_size, ptr %arg_addresses)
  %has_stacks = icmp ne i64 %stacks, 0
  br i1 %has_stacks, label %choose, label %go_on
choose:
  %chosen = call i1 @choose_parts(ptr %frame, ptr %binding, ptr %arg_addresses, ptr null, i64 %args_size)
  br i1 %chosen, label %go_on, label %no_part
no_part:
  ret i32 -2                                          ; an index beyond the parts
go_on:
  %result_addresses = alloca ptr, i64 %results_size
  call void @gather(ptr %results, i64 %results_size, ptr %result_addresses)
  %call = alloca %Call
  %host = alloca %Host
  call void @fill_host(ptr %frame, ptr %binding, ptr %host)
  %scratch_at = getelementptr %Call, ptr %call, i32 0, i32 2
  %host_at = getelementptr %Call, ptr %call, i32 0, i32 3
  store %Call zeroinitializer, ptr %call
  %call_results_at = getelementptr %Call, ptr %call, i32 0, i32 1
  store ptr %arg_addresses, ptr %call
  store ptr %result_addresses, ptr %call_results_at
  store ptr %host, ptr %host_at
  %has_scratch = icmp sgt i64 %scratch_bytes, 0
  br i1 %has_scratch, label %take_scratch, label %run
take_scratch:                                         ; the last result
  %last = add i64 %results_size, -1
  %last_at = getelementptr ptr, ptr %result_addresses, i64 %last
  %scratch = load ptr, ptr %last_at
  store ptr %scratch, ptr %scratch_at
  br label %run
run:
  %kernel = load ptr, ptr %binding
  %large = call i64 @bytes_above(ptr %results, i64 %results_size, i64 33554432)
  %has_large = icmp sgt i64 %large, 0
  br i1 %has_large, label %run_large, label %run_small
run_small:
  %status = call i32 %kernel(ptr %call)
  ret i32 %status
run_large:
  %asks = call i1 @asks_for_large(ptr %new_pages, ptr %binding)
  br i1 %asks, label %ask, label %begin
ask:
  %advised = call i1 @ask_for_pages(ptr %results, i64 %results_size, i64 33554433, i1 true, i1 false)
  br label %begin
begin:
  %start = call i64 @now()
  %found = call i32 %kernel(ptr %call)
  %end = call i64 @now()
  %took = sub i64 %end, %start
  call void @note_pages(ptr %new_pages, i64 %large, i64 %took, i1 %asks)
  ret i32 %found
}
