; Trees of one depth, asked of a vector of rows at a time: forest.py puts numbers, and the tests of a
; tree, in the place of names in braces.

declare <${lanes} x float> @llvm.masked.gather.v${lanes}f32.v${lanes}p0(<${lanes} x ptr>, i32, <${lanes} x i1>, <${lanes} x float>)

; `rows` are `count` times `columns`, without an end; `sums` has room for whole vectors; `turned` is
; for the columns of one vector of rows, which the last fills up with its last row.
define void @walk(i64 %count, i64 %columns, i64 %trees, ptr %rows, ptr %turned, ptr %tests, ptr %bounds, ptr %leaves, ptr %sums) {
entry:
  %last = sub i64 %count, 1
  br label %rows.some
rows.some:
  %row = phi i64 [ 0, %entry ], [ %row.next, %rows.done ]
  %row.one = insertelement <${lanes} x i64> poison, i64 %row, i64 0
  %row.all = shufflevector <${lanes} x i64> %row.one, <${lanes} x i64> poison, <${lanes} x i32> zeroinitializer
  %row.each = add <${lanes} x i64> %row.all, <${numbers}>
  %last.one = insertelement <${lanes} x i64> poison, i64 %last, i64 0
  %last.all = shufflevector <${lanes} x i64> %last.one, <${lanes} x i64> poison, <${lanes} x i32> zeroinitializer
  %beyond = icmp sgt <${lanes} x i64> %row.each, %last.all
  %row.there = select <${lanes} x i1> %beyond, <${lanes} x i64> %last.all, <${lanes} x i64> %row.each
  %columns.one = insertelement <${lanes} x i64> poison, i64 %columns, i64 0
  %columns.all = shufflevector <${lanes} x i64> %columns.one, <${lanes} x i64> poison, <${lanes} x i32> zeroinitializer
  %offsets = mul <${lanes} x i64> %row.there, %columns.all
  br label %turn
turn:
  %column = phi i64 [ 0, %rows.some ], [ %column.next, %turn ]
  %from = getelementptr float, ptr %rows, i64 %column
  %from.each = getelementptr float, ptr %from, <${lanes} x i64> %offsets
  %read = call <${lanes} x float> @llvm.masked.gather.v${lanes}f32.v${lanes}p0(<${lanes} x ptr> %from.each, i32 4, <${lanes} x i1> splat (i1 true), <${lanes} x float> poison)
  %to.offset = mul i64 %column, ${lanes}
  %to = getelementptr float, ptr %turned, i64 %to.offset
  store <${lanes} x float> %read, ptr %to, align 4
  %column.next = add i64 %column, 1
  %more.columns = icmp slt i64 %column.next, %columns
  br i1 %more.columns, label %turn, label %begin
begin:
  %sums.at = getelementptr float, ptr %sums, i64 %row
  %sum.before = load <${lanes} x float>, ptr %sums.at, align 4
  br label %tree
tree:
  %number = phi i64 [ 0, %begin ], [ %number.next, %tree ]
  %sum = phi <${lanes} x float> [ %sum.before, %begin ], [ %sum.next, %tree ]
  %inner.offset = mul i64 %number, ${inner}
  %tests.at = getelementptr i32, ptr %tests, i64 %inner.offset
  %bounds.at = getelementptr float, ptr %bounds, i64 %inner.offset
  %leaves.offset = mul i64 %number, ${leaves}
  %leaves.at = getelementptr float, ptr %leaves, i64 %leaves.offset
${value}
  %sum.next = fadd <${lanes} x float> %sum, %v0
  %number.next = add i64 %number, 1
  %more.trees = icmp slt i64 %number.next, %trees
  br i1 %more.trees, label %tree, label %rows.done
rows.done:
  store <${lanes} x float> %sum.next, ptr %sums.at, align 4
  %row.next = add i64 %row, ${lanes}
  %more.rows = icmp slt i64 %row.next, %count
  br i1 %more.rows, label %rows.some, label %done
done:
  ret void
}
