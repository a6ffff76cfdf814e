; The remainder of a quotient that is rounded towards zero, exactly, with the sign of the dividend.
; Below $LARGE the nearest whole number to the quotient is known, and what a fused multiply-add leaves
; of the dividend is exact; where any lane has a larger quotient the C library computes all of them.

define internal $V @$NAME($V %x, $V %y) noinline {
  %dividend = call $V @llvm.fabs.$SUFFIX($V %x)
  %divisor = call $V @llvm.fabs.$SUFFIX($V %y)
  %quotient = fdiv $V %dividend, %divisor
  %is_near = fcmp ult $V %quotient, $LARGE           ; and where it is no number
  %known = freeze <$LANES x i1> %is_near
  %all = call i1 @llvm.vector.reduce.and.v${LANES}i1(<$LANES x i1> %known)
  br i1 %all, label %near, label %far

near:
  %shifted = fadd $V %quotient, $MAGIC
  %count = fsub $V %shifted, $MAGIC
  %back = fneg $V %count
  %rest = call $V @llvm.fma.$SUFFIX($V %back, $V %divisor, $V %dividend)
  %above = fadd $V %rest, %divisor
  %is_below = fcmp olt $V %rest, zeroinitializer
  %positive = select <$LANES x i1> %is_below, $V %above, $V %rest
  %is_less = fcmp olt $V %dividend, %divisor          ; the divisor may be infinite
  %size = select <$LANES x i1> %is_less, $V %dividend, $V %positive
  %signed = call $V @llvm.copysign.$SUFFIX($V %size, $V %x)
  ret $V %signed

far:
  %slow = frem $V %x, %y
  ret $V %slow
}
